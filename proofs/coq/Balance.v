(** * T1 to T4: what a split of the demands does to both sides of every NIC *)
From Coq Require Import Arith Lia List Bool.
From Rails Require Import Sums Model.

Section Balance.
  Variables (M N : nat).
  Variable D : nat -> nat -> nat.
  Variable x : nat -> nat -> nat -> nat.
  Notation feasible := (feasible M N D x).
  Notation Snd := (Snd M x).
  Notation Rcv := (Rcv M x).
  Notation row := (row M D).
  Notation col := (col M D).
  Notation senders := (senders M D).
  Notation receivers := (receivers M D).

  (** ** T1: splitting every pair evenly balances sends and receives, for any demand *)
  Theorem T1_balance :
    (forall k f n, k < M -> f < M -> n < N -> N * x k f n = D k f) ->
    (forall k n, k < M -> n < N -> N * Snd k n = row k) /\
    (forall f n, f < M -> n < N -> N * Rcv f n = col f).
  Proof.
    intros H; split; intros; unfold Model.Snd, Model.Rcv, Model.row, Model.col;
      rewrite sum_mul; apply sum_ext; auto.
  Qed.

  (** ** T3: aggregate-uniform sending is off by a factor of at most min(N, senders)

      Two things limit what [f] gets on rail [n] from one sender: that sender's demand,
      and what it sends on the rail at all. *)
  Theorem T3_min_bound :
    feasible -> forall f n, f < M -> n < N ->
    Rcv f n <= sum M (fun k => Nat.min (D k f) (Snd k n)).
  Proof.
    intros F f n Hf Hn. apply sum_le. intros k Hk.
    apply Nat.min_glb; [now apply (x_le_D M N D x) | now apply (x_le_S M x)].
  Qed.

  (** T3b: aggregate-uniform sending is off by a factor of at most min(N, senders). *)
  Theorem T3_factor :
    feasible -> forall L,
    (forall k n, k < M -> n < N -> N * Snd k n = row k) ->
    (forall k, k < M -> row k <= L) -> (forall f, f < M -> col f <= L) ->
    forall f n, f < M -> n < N -> N * Rcv f n <= Nat.min N (senders f) * L.
  Proof.
    intros F L HS Hr Hc f n Hf Hn.
    assert (A : N * Rcv f n <= N * L).
    { apply Nat.mul_le_mono_l. transitivity (col f); [|auto].
      apply sum_le. intros k Hk. now apply (x_le_D M N D x). }
    assert (B : N * Rcv f n <= senders f * L).
    { unfold Model.Rcv, Model.senders, count. rewrite sum_mul, Nat.mul_comm, sum_mul.
      apply sum_le. intros k Hk. destruct (Nat.ltb_spec 0 (D k f)) as [Hp|Hz].
      - rewrite Nat.mul_1_r. transitivity (row k); [|auto].
        rewrite <- (HS k n Hk Hn). apply Nat.mul_le_mono_l. now apply (x_le_S M x).
      - pose proof (x_le_D M N D x F k f n Hk Hf Hn). nia. }
    destruct (Nat.min_spec N (senders f)) as [[_ ->]|[_ ->]]; assumption.
  Qed.

  (** ** T4: chunks of [q] bytes cost at most (1 - 1/N) q per sender *)
  Lemma chunk_one : feasible -> forall q, chunked M N x q ->
    forall k f n, k < M -> f < M -> n < N ->
    N * x k f n <= D k f + (N - 1) * ((if 0 <? D k f then 1 else 0) * q).
  Proof.
    intros F q Q k f n Hk Hf Hn. destruct (Nat.ltb_spec 0 (D k f)) as [Hp|Hz].
    - assert (G : N * x k f n + q <= D k f + N * q).
      { rewrite <- (F k f Hk Hf), <- (sum_const N q), <- sum_add, <- sum_const.
        clear Hp F. revert Hn. generalize (Q k f n) as Qn. intros Qn Hn.
        assert (E : forall m, m <= N ->
          sum m (fun _ => x k f n) + (if n <? m then q else 0)
            <= sum m (fun i => x k f i + q)).
        { induction m as [|m IH]; intros Hm; simpl; [lia|]. specialize (IH ltac:(lia)).
          destruct (Nat.ltb_spec n m), (Nat.ltb_spec n (S m)); try lia;
            (destruct (Nat.eq_dec n m) as [<-|];
             [lia | pose proof (Qn m Hk Hf Hn ltac:(lia)); lia]). }
        specialize (E N (le_n N)). apply Nat.ltb_lt in Hn. rewrite Hn in E. exact E. }
      destruct N; [lia|]. simpl Nat.sub. rewrite Nat.sub_0_r. nia.
    - pose proof (x_le_D M N D x F k f n Hk Hf Hn). nia.
  Qed.

  Theorem T4_chunk :
    feasible -> forall q, chunked M N x q ->
    (forall f n, f < M -> n < N -> N * Rcv f n <= col f + (N - 1) * senders f * q) /\
    (forall k n, k < M -> n < N -> N * Snd k n <= row k + (N - 1) * receivers k * q).
  Proof.
    intros F q Q; split; intros a n Ha Hn; unfold Model.Rcv, Model.Snd, Model.col, Model.row, Model.senders, Model.receivers, count;
      rewrite <- Nat.mul_assoc, (Nat.mul_comm (sum M _) q), sum_mul, sum_mul, sum_mul, <- sum_add;
      apply sum_le; intros b Hb; rewrite (Nat.mul_comm q); now apply chunk_one.
  Qed.

End Balance.

(** ** T2: aggregate-uniform sending does NOT balance receiving

    The traffic is the friendliest there is: [N + 1] nodes, one unit between any two. *)
Definition D1 (k f : nat) : nat := if k =? f then 0 else 1.
Definition on_rail (rail : nat -> nat -> nat) (k f n : nat) : nat :=
  if negb (k =? f) && (rail k f =? n) then 1 else 0.
(** the bad split: sender [k] serves its destinations in increasing order on rails 0, 1, ... *)
Definition rank (k f : nat) : nat := if f <? k then f else f - 1.
Definition xbad := on_rail rank.
(** the good one: a rotation (Latin square) *)
Definition rot (N k f : nat) : nat := if k <? f then f - k - 1 else N + f - k.
Definition xrot N := on_rail (rot N).

Ltac cmp :=
  repeat match goal with
  | |- context [?a =? ?b] => destruct (Nat.eqb_spec a b)
  | |- context [?a <? ?b] => destruct (Nat.ltb_spec a b)
  | H : context [?a <? ?b] |- _ => destruct (Nat.ltb_spec a b)
  end; simpl in *; try lia.

Lemma on_rail_feasible N rail :
  (forall k f, k < S N -> f < S N -> k <> f -> rail k f < N) ->
  feasible (S N) N D1 (on_rail rail).
Proof.
  intros H k f Hk Hf. unfold D1, on_rail.
  destruct (Nat.eqb_spec k f) as [->|Hne]; simpl.
  - apply sum_0. auto.
  - apply sum_unique with (a := rail k f); [now apply H|].
    intros i _. rewrite Nat.eqb_eq. intuition congruence.
Qed.

Lemma row1 N k : k < S N -> row (S N) D1 k = N.
Proof.
  intros Hk. unfold row, D1.
  pose proof (sum_add (S N) (fun f => if k =? f then 0 else 1) (fun f => if f =? k then 1 else 0)) as E.
  rewrite sum_ind in E. apply Nat.ltb_lt in Hk. rewrite Hk in E.
  rewrite (sum_ext (S N) _ (fun _ => 1)), sum_const in E; [lia|].
  intros i _. rewrite (Nat.eqb_sym i k). destruct (k =? i); auto.
Qed.

Lemma col1 N f : f < S N -> col (S N) D1 f = N.
Proof.
  intros H. transitivity (row (S N) D1 f); [|now apply row1].
  apply sum_ext. intros. unfold D1. now rewrite Nat.eqb_sym.
Qed.

Theorem T2_general : forall N, 1 <= N ->
  (* the bad split: feasible, every node sends exactly 1 on every rail ... *)
  feasible (S N) N D1 xbad /\
  (forall k n, k < S N -> n < N -> Snd (S N) xbad k n = 1) /\
  (* ... yet node 0 receives all its N units on rail 0 *)
  Rcv (S N) xbad 0 0 = N /\
  (* the rotation split of the same demand: all sends and receives are exactly 1 *)
  feasible (S N) N D1 (xrot N) /\
  (forall k n, k < S N -> n < N -> Snd (S N) (xrot N) k n = 1) /\
  (forall f n, f < S N -> n < N -> Rcv (S N) (xrot N) f n = 1).
Proof.
  intros N HN. repeat split.
  - apply on_rail_feasible. intros k f Hk Hf Hne. unfold rank. cmp.
  - intros k n Hk Hn. unfold Snd, xbad, on_rail.
    apply sum_unique with (a := if n <? k then n else S n); [cmp|].
    intros i Hi. unfold rank. cmp; intuition (try lia; try congruence).
  - unfold Rcv, xbad, on_rail.
    transitivity (col (S N) D1 0); [|apply col1; lia].
    apply sum_ext. intros k Hk. unfold D1, rank. cmp.
  - apply on_rail_feasible. intros k f Hk Hf Hne. unfold rot. cmp.
  - intros k n Hk Hn. unfold Snd, xrot, on_rail.
    apply sum_unique with (a := if k + n + 1 <? S N then k + n + 1 else k + n - N); [cmp|].
    intros i Hi. unfold rot. cmp; intuition (try lia; try congruence).
  - intros f n Hf Hn. unfold Rcv, xrot, on_rail.
    apply sum_unique with (a := if n <? f then f - n - 1 else N + f - n); [cmp|].
    intros i Hi. unfold rot. cmp; intuition (try lia; try congruence).
Qed.

(** and 1 is the optimum: no feasible split of this demand has all receives (or sends) < 1 *)
Theorem T2_optimum : forall N x, 1 <= N -> feasible (S N) N D1 x ->
  (forall f, f < S N -> exists n, n < N /\ 1 <= Rcv (S N) x f n) /\
  (forall k, k < S N -> exists n, n < N /\ 1 <= Snd (S N) x k n).
Proof.
  intros N x HN F. destruct (T0_lower _ _ _ _ F HN) as [A B]. split; intros v Hv.
  - destruct (A v Hv) as (n & Hn & E). rewrite col1 in E by auto. exists n. split; auto. nia.
  - destruct (B v Hv) as (n & Hn & E). rewrite row1 in E by auto. exists n. split; auto. nia.
Qed.

(** the hypothesis and failing conclusion in the shape of T1, for every N >= 2 *)
Theorem T2_refutation : forall N, 2 <= N ->
  exists D x, feasible (S N) N D x /\
    (forall k n, k < S N -> n < N -> N * Snd (S N) x k n = row (S N) D k) /\
    exists f n, f < S N /\ n < N /\ N * Rcv (S N) x f n <> col (S N) D f.
Proof.
  intros N HN. destruct (T2_general N ltac:(lia)) as (F & HS & HR & _).
  exists D1, xbad. split; [exact F|]. split.
  - intros k n Hk Hn. rewrite HS, row1 by assumption. lia.
  - exists 0, 0. rewrite HR, col1 by lia. repeat split; nia.
Qed.

(** the smallest instance, M = 3, N = 2 *)
Theorem T2_M3_N2 :
  exists D x, feasible 3 2 D x /\
    (forall k n, k < 3 -> n < 2 -> 2 * Snd 3 x k n = row 3 D k) /\
    exists f n, f < 3 /\ n < 2 /\ 2 * Rcv 3 x f n <> col 3 D f.
Proof. exact (T2_refutation 2 (le_n 2)). Qed.

(** ** T2, the exact condition: aggregate-uniform sending forces uniform receiving
       if and only if there are at most two nodes or one rail *)
Definition no_self (M : nat) (D : nat -> nat -> nat) : Prop := forall k, k < M -> D k k = 0.
Definition sending_balances_receiving (M N : nat) : Prop :=
  forall D x, no_self M D -> feasible M N D x ->
    (forall k n, k < M -> n < N -> N * Snd M x k n = row M D k) ->
    forall f n, f < M -> n < N -> N * Rcv M x f n = col M D f.

(** node 0 sends to 1 on every rail but the first, and to 2 on the first *)
Definition xlean (k f n : nat) : nat :=
  if (k =? 0) && (f =? (if n =? 0 then 2 else 1)) then 1 else 0.

Theorem T2_exact : forall M N, sending_balances_receiving M N <-> M <= 2 \/ N <= 1.
Proof.
  intros M N. split.
  - intros H. destruct (le_lt_dec M 2) as [|HM]; [now left|]. destruct (le_lt_dec N 1) as [|HN]; [now right|]. exfalso.
    assert (S0 : forall n, Snd M xlean 0 n = 1).
    { intros n. unfold Snd, xlean. apply sum_unique with (a := if n =? 0 then 2 else 1).
      - destruct (n =? 0); lia.
      - intros f _. simpl. rewrite Nat.eqb_eq. tauto. }
    assert (Z : forall k f n, k <> 0 -> xlean k f n = 0).
    { intros k f n Hk. unfold xlean. destruct (Nat.eqb_spec k 0); [contradiction|reflexivity]. }
    set (D := fun k f => sum N (xlean k f)).
    assert (B : N * Rcv M xlean 1 0 = col M D 1).
    { apply H; [|intros k f _ _; reflexivity| |lia|lia].
      - intros k _. apply sum_0. intros n _. unfold xlean.
        destruct k as [|k]; simpl; [destruct (n =? 0)|]; reflexivity.
      - intros k n Hk _. unfold row, D. rewrite sum_swap. destruct (Nat.eq_dec k 0) as [->|Hk0].
        + rewrite S0. rewrite (sum_ext N _ (fun _ => 1)) by (intros i _; exact (S0 i)). now rewrite sum_const.
        + unfold Snd. rewrite (sum_0 M) by (intros; now apply Z). rewrite sum_0; [lia|].
          intros i _. apply sum_0. intros; now apply Z. }
    assert (R0 : Rcv M xlean 1 0 = 0).
    { apply sum_0. intros k _. unfold xlean. destruct (k =? 0); reflexivity. }
    assert (C1 : 1 <= col M D 1).
    { apply Nat.le_trans with (D 0 1).
      - apply Nat.le_trans with (xlean 0 1 1); [reflexivity|].
        exact (sum_single N (xlean 0 1) 1 HN).
      - apply (sum_single M (fun k => D k 1)). lia. }
    lia.
  - intros H D x Hs F HS f n Hf Hn. destruct H as [HM|HN].
    + assert (Self : forall k, k < M -> x k k n = 0).
      { intros k Hk. pose proof (x_le_D M N D x F k k n Hk Hk Hn) as L. rewrite (Hs k Hk) in L. lia. }
      destruct M as [|[|[|M]]]; try lia.
      * replace f with 0 in * by lia. unfold Rcv, col. simpl. rewrite (Self 0), (Hs 0) by lia. lia.
      * unfold Rcv, col, Snd, row in *. simpl in *.
        destruct f as [|[|f]]; try lia.
        -- specialize (HS 1 n ltac:(lia) Hn). rewrite (Self 1), (Hs 1) in HS by lia.
           rewrite (Self 0), (Hs 0) by lia. lia.
        -- specialize (HS 0 n ltac:(lia) Hn). rewrite (Self 0), (Hs 0) in HS by lia.
           rewrite (Self 1), (Hs 1) by lia. lia.
    + assert (N = 1) as -> by lia. replace n with 0 by lia. rewrite Nat.mul_1_l.
      apply sum_ext. intros k Hk. rewrite <- (F k f Hk Hf). reflexivity.
Qed.
