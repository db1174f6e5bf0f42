(** * T10, first half: what "N parallel channels between two domains" needs

    RailS (arXiv 2510.19262) takes from R1 > R2 that two domains are joined by N channels of
    R2 each.  For one hot GPU that is a max-flow question: its bytes reach the other rails only
    through its own scale-up port of R1, and arrive through the target's.  The maximum is
    R2 + min(R1, (N-1) R2), so all N channels are usable if and only if R1 >= (N-1) R2. *)
From Coq Require Import Arith NArith QArith Lia Lqa List Bool.
From Rails Require Import QSums Unequal.
Open Scope Q_scope.

(** ** Flows from GPU 0 of one domain to GPU 0 of another

    [p g h] and [r g h] move over scale-up inside the source and the target domain, [y n] over
    rail [n]; [v] is the value of the flow. *)
Definition hot (v : Q) (g : nat) : Q := if (g =? 0)%nat then v else 0.
Definition flow (N : nat) (R1 R2 : Q) (p : nat -> nat -> Q) (y : nat -> Q) (r : nat -> nat -> Q) (v : Q) : Prop :=
  (forall g h, (g < N)%nat -> (h < N)%nat -> 0 <= p g h /\ 0 <= r g h) /\
  (forall n, (n < N)%nat -> 0 <= y n /\ y n <= R2) /\
  (forall g, (g < N)%nat -> qsum N (p g) <= R1 /\ qsum N (fun h => p h g) <= R1) /\
  (forall g, (g < N)%nat -> qsum N (r g) <= R1 /\ qsum N (fun h => r h g) <= R1) /\
  (forall g, (g < N)%nat -> hot v g + qsum N (fun h => p h g) == qsum N (p g) + y g) /\
  (forall g, (g < N)%nat -> y g + qsum N (fun h => r h g) == qsum N (r g) + hot v g).

(** ** Two cuts bound the value: around the hot GPU, and through all rails *)
Theorem T10_cuts : forall N R1 R2 p y r v, (1 <= N)%nat -> flow N R1 R2 p y r v ->
  v <= R1 + R2 /\ v <= inject_Z (Z.of_nat N) * R2.
Proof.
  intros N R1 R2 p y r v HN (P & Y & E & _ & C & _). split.
  - specialize (C 0%nat ltac:(lia)). unfold hot in C. simpl in C.
    destruct (E 0%nat ltac:(lia)) as [E0 _]. destruct (Y 0%nat ltac:(lia)) as [_ Y0].
    assert (0 <= qsum N (fun h => p h 0%nat)) by (apply qsum_nonneg; intros h Hh; apply P; lia). lra.
  - assert (A : v == qsum N y).
    { assert (S : qsum N (fun g => hot v g + qsum N (fun h => p h g)) == qsum N (fun g => qsum N (p g) + y g)).
      { apply qsum_ext. exact C. }
      rewrite !qsum_add in S.
      assert (Sw : qsum N (fun g => qsum N (fun h => p h g)) == qsum N (fun g => qsum N (p g)))
        by (exact (qsum_swap N N (fun g h => p h g))).
      rewrite Sw in S.
      rewrite (qsum_pick N (hot v) 0) in S by lia.
      rewrite (qsum_zero N (fun i => if (i =? 0)%nat then 0 else hot v i)) in S.
      - change (hot v 0) with v in S. lra.
      - intros i _. unfold hot. destruct (i =? 0)%nat; reflexivity. }
    rewrite A, <- qsum_const. apply qsum_le. intros n Hn. apply Y. exact Hn.
Qed.

(** ** Every value within both cuts is attained: the hot GPU sends [v0] itself and spreads the rest *)
Definition spread (N : nat) (v0 rest : Q) (n : nat) : Q :=
  if (n =? 0)%nat then v0 else rest / inject_Z (Z.of_nat (N - 1)).
Definition fan_out (N : nat) (rest : Q) (g h : nat) : Q :=
  if ((g =? 0) && negb (h =? 0))%nat then rest / inject_Z (Z.of_nat (N - 1)) else 0.

Lemma others_total N c : (1 <= N)%nat -> qsum N (fun h => if negb (h =? 0)%nat then c else 0) == inject_Z (Z.of_nat (N - 1)) * c.
Proof.
  intros HN. assert (A : qsum N (fun h => if negb (h =? 0)%nat then c else 0) == qsum N (fun _ => c) - c).
  { rewrite (qsum_pick N (fun _ => c) 0) by lia. rewrite (qsum_ext N (fun h => if negb (h =? 0)%nat then c else 0)
      (fun i => if (i =? 0)%nat then 0 else c)) by (intros i _; destruct (i =? 0)%nat; reflexivity). ring. }
  rewrite A, qsum_const. replace (Z.of_nat (N - 1)) with (Z.of_nat N - 1)%Z by lia.
  unfold Z.sub. rewrite inject_Z_plus. simpl (inject_Z (- (1))). change (inject_Z (-1)) with (-(1)). ring.
Qed.

Lemma only_zero N (c : Q) (b : bool) : (1 <= N)%nat -> qsum N (fun h => if ((h =? 0) && b)%nat then c else 0) == if b then c else 0.
Proof.
  intros HN. rewrite (qsum_pick N _ 0) by lia. simpl. rewrite (qsum_zero N); [destruct b; ring|].
  intros i _. destruct (i =? 0)%nat; reflexivity.
Qed.

Theorem T10_maxflow : forall N R1 R2 v, (1 <= N)%nat -> 0 <= R1 -> 0 <= R2 -> 0 <= v ->
  ((exists p y r, flow N R1 R2 p y r v) <-> v <= R1 + R2 /\ v <= inject_Z (Z.of_nat N) * R2).
Proof.
  intros N R1 R2 v HN H1 H2 Hv. split.
  - intros (p & y & r & F). exact (T10_cuts _ _ _ _ _ _ _ HN F).
  - intros [Ha Hb].
    (* what the hot GPU sends itself, and the rest *)
    assert (W : exists v0 rest, 0 <= v0 /\ v0 <= R2 /\ 0 <= rest /\ rest <= R1 /\ v == v0 + rest /\
      rest <= inject_Z (Z.of_nat (N - 1)) * R2 /\ (rest == 0 \/ (2 <= N)%nat)).
    { destruct (Qlt_le_dec R2 v) as [Hgt|Hle].
      - exists R2, (v - R2). assert (E : inject_Z (Z.of_nat (N - 1)) == inject_Z (Z.of_nat N) - 1).
        { replace (Z.of_nat (N - 1)) with (Z.of_nat N + (-1))%Z by lia. rewrite inject_Z_plus. reflexivity. }
        rewrite E. repeat split; try lra. destruct (le_lt_dec 2 N) as [|Hlt]; [now right|]. exfalso.
        assert (N = 1%nat) as -> by lia. change (inject_Z (Z.of_nat 1)) with 1 in Hb. lra.
      - exists v, 0. repeat split; try lra. apply Qmult_le_0_compat; [|exact H2]. unfold Qle, inject_Z. simpl. lia. }
    destruct W as (v0 & rest & A0 & A1 & A2 & A3 & Ev & A4 & A5).
    set (c := rest / inject_Z (Z.of_nat (N - 1))).
    assert (Hc : inject_Z (Z.of_nat (N - 1)) * c == rest /\ 0 <= c /\ c <= R2).
    { destruct (le_lt_dec 2 N) as [H|H].
      - assert (P : 0 < inject_Z (Z.of_nat (N - 1))) by (unfold Qlt, inject_Z; simpl; lia).
        split; [unfold c; field; intros E; rewrite E in P; now apply Qlt_irrefl in P|]. split.
        + now apply positive_ratio.
        + apply Qle_shift_div_r; [exact P|]. rewrite Qmult_comm. exact A4.
      - assert (N = 1%nat) as -> by lia. destruct A5 as [E|]; [|lia]. unfold c. rewrite E.
        change (inject_Z (Z.of_nat (1 - 1))) with 0. change (0 / 0) with 0. repeat split; lra. }
    destruct Hc as (Hc & C0 & C1).
    exists (fan_out N rest), (spread N v0 rest), (fun g h => fan_out N rest h g).
    assert (Row : forall g, (g < N)%nat -> qsum N (fan_out N rest g) == if (g =? 0)%nat then rest else 0).
    { intros g Hg. unfold fan_out. fold c. destruct (g =? 0)%nat; simpl.
      - rewrite others_total by exact HN. exact Hc.
      - now apply qsum_zero. }
    assert (Col : forall g, (g < N)%nat -> qsum N (fun h => fan_out N rest h g) == if (g =? 0)%nat then 0 else c).
    { intros g Hg. unfold fan_out. fold c. rewrite (only_zero N c (negb (g =? 0)%nat)) by exact HN.
      destruct (g =? 0)%nat; reflexivity. }
    assert (Cap : forall g, (g < N)%nat -> qsum N (fan_out N rest g) <= R1 /\ qsum N (fun h => fan_out N rest h g) <= R1).
    { intros g Hg. rewrite Row, Col by exact Hg. destruct (Nat.eqb_spec g 0); [split; lra|]. split; [lra|].
      assert (P : 1 <= inject_Z (Z.of_nat (N - 1))) by (unfold Qle, inject_Z; simpl; lia).
      assert (1 * c <= inject_Z (Z.of_nat (N - 1)) * c) by (now apply Qmult_le_compat_r). lra. }
    assert (Bal : forall g, (g < N)%nat -> hot v g + qsum N (fun h => fan_out N rest h g) ==
      qsum N (fan_out N rest g) + spread N v0 rest g).
    { intros g Hg. rewrite Row, Col by exact Hg. unfold hot, spread. fold c. destruct (g =? 0)%nat; lra. }
    split; [|split; [|split; [|split; [|split]]]].
    + intros g h _ _. unfold fan_out. fold c. destruct ((g =? 0) && negb (h =? 0))%nat, ((h =? 0) && negb (g =? 0))%nat; split; lra.
    + intros n _. unfold spread. fold c. destruct (n =? 0)%nat; split; lra.
    + exact Cap.
    + intros g Hg. destruct (Cap g Hg) as [X Y]. split; [exact Y|exact X].
    + exact Bal.
    + intros g Hg. specialize (Bal g Hg). change (qsum N ((fun g h => fan_out N rest h g) g)) with (qsum N (fun h => fan_out N rest h g)).
      change (qsum N (fun h => fan_out N rest g h)) with (qsum N (fan_out N rest g)). lra.
Qed.

(** ** All N channels are usable by one GPU if and only if R1 >= (N-1) R2 *)
Theorem T10_channels : forall N R1 R2, (1 <= N)%nat -> 0 <= R1 -> 0 <= R2 ->
  ((exists p y r, flow N R1 R2 p y r (inject_Z (Z.of_nat N) * R2)) <-> (inject_Z (Z.of_nat N) - 1) * R2 <= R1).
Proof.
  intros N R1 R2 HN H1 H2. rewrite T10_maxflow; auto.
  - split; [intros [A _]; lra|intros A; split; lra].
  - apply Qmult_le_0_compat; [|exact H2]. pose proof (rails_pos N HN). lra.
Qed.

(** R1 > R2 is not enough: eight NICs of 50 GB/s behind scale-up ports of 200 GB/s carry 250, not 400 *)
Theorem T10_refutation : 50 < 200 /\
  (forall v, 0 <= v -> ((exists p y r, flow 8 200 50 p y r v) <-> v <= 250)) /\
  ~ (exists p y r, flow 8 200 50 p y r (8 * 50)).
Proof.
  assert (A : forall v, 0 <= v -> ((exists p y r, flow 8 200 50 p y r v) <-> v <= 250)).
  { intros v Hv. rewrite T10_maxflow by (try lia; try lra; discriminate).
    change (inject_Z (Z.of_nat 8)) with 8. split; [intros [B _]; lra|intros B; split; lra]. }
  split; [reflexivity|]. split; [exact A|]. intros F. apply A in F; [|discriminate]. lra.
Qed.
