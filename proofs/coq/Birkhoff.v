(** * T13: a matrix with equal line sums, as stages in which every server has one peer

    A stage takes one matching off the matrix, as far as its smallest entry lasts.  There is
    always a next one (a colour of T8), the lengths add up to the line sum, and there are at
    most n^2 - 2n + 2 stages, whatever matchings are chosen: every stage empties an entry
    that no later stage uses, so the stages are linearly independent, and matrices with equal
    line sums have (n-1)^2 + 1 coordinates. *)
From Coq Require Import Arith Lia List Bool ZArith.
From Rails Require Import Sums Model Equitable.
Import ListNotations.

(** ** Definitions *)

(** every row and every column sums to [L] *)
Definition lines (n L : nat) (A : nat -> nat -> nat) : Prop :=
  (forall i, i < n -> row n A i = L) /\ (forall j, j < n -> col n A j = L).

(** server i sends to server [p i], and every server receives from exactly one *)
Definition matching (n : nat) (p : nat -> nat) : Prop :=
  (forall i, i < n -> p i < n) /\ (forall j, j < n -> count n (fun i => p i =? j) = 1).

(** the matrix of a stage: [w] bytes from each server to its peer *)
Definition sends (w : nat) (p : nat -> nat) (i j : nat) : nat := if p i =? j then w else 0.

(** [stages n A ss]: the matchings [ss], one after another and each as long as its smallest
    entry lasts, empty [A] *)
Inductive stages (n : nat) : (nat -> nat -> nat) -> list (nat * (nat -> nat)) -> Prop :=
  | stages_end A : (forall i j, i < n -> j < n -> A i j = 0) -> stages n A []
  | stages_more A w p ss :
      0 < w -> matching n p ->
      (forall i, i < n -> w <= A i (p i)) -> (exists i, i < n /\ A i (p i) = w) ->
      stages n (fun i j => A i j - sends w p i j) ss -> stages n A ((w, p) :: ss).

(** lengths added up, and what server i sends to server j in all stages *)
Definition time (ss : list (nat * (nat -> nat))) : nat := list_sum (map fst ss).
Definition sent (ss : list (nat * (nat -> nat))) (i j : nat) : nat :=
  list_sum (map (fun s => sends (fst s) (snd s) i j) ss).

(** ** The next matching *)

Lemma sends_row n w p i : matching n p -> i < n -> row n (sends w p) i = w.
Proof.
  intros [Hp _] Hi. unfold row, sends.
  rewrite (sum_ext n _ (fun j => if j =? p i then w else 0)).
  - apply (sum_pick n (p i) (fun _ => w)). auto.
  - intros j _. now rewrite Nat.eqb_sym.
Qed.

Lemma sends_col n w p j : matching n p -> j < n -> col n (sends w p) j = w.
Proof.
  intros [_ Hc] Hj. unfold col, sends.
  rewrite (sum_ext n _ (fun i => w * (if p i =? j then 1 else 0))).
  - rewrite <- sum_mul. pose proof (Hc j Hj) as E. unfold count in E. rewrite E. lia.
  - intros i _. destruct (p i =? j); lia.
Qed.

Lemma one_of n f : sum n f = 1 -> exists a, a < n /\ f a = 1 /\ forall i, i < n -> i <> a -> f i = 0.
Proof.
  induction n as [|n IH]; simpl; intros H; [lia|]. destruct (Nat.eq_dec (f n) 0) as [E|E].
  - destruct IH as (a & Ha & Fa & O); [lia|]. exists a. split; [lia|]. split; [exact Fa|].
    intros i Hi Ne. destruct (Nat.eq_dec i n) as [->|]; [exact E|]. apply O; lia.
  - exists n. split; [lia|]. split; [lia|]. intros i Hi Ne.
    pose proof (sum_single n f i ltac:(lia)). lia.
Qed.

Lemma choice n (R : nat -> nat -> Prop) : (forall i, i < n -> exists j, R i j) ->
  exists p, forall i, i < n -> R i (p i).
Proof.
  induction n as [|n IH]; intros H; [exists (fun i => i); lia|].
  destruct IH as [p Hp]; [intros i Hi; apply H; lia|]. destruct (H n ltac:(lia)) as [j Hj].
  exists (fun i => if i =? n then j else p i). intros i Hi.
  destruct (Nat.eqb_spec i n) as [->|]; [exact Hj|]. apply Hp. lia.
Qed.

(** T13: as long as bytes are left there is a matching on the entries that have some *)
Theorem T13_matching : forall n L A, lines n L A -> 0 < L ->
  exists p, matching n p /\ forall i, i < n -> 0 < A i (p i).
Proof.
  intros n L A [HR HC] HL. destruct (T8_equitable n L A ltac:(lia)) as (x & F & S & R).
  assert (Sx : forall i, i < n -> sum n (fun j => x i j 0) = 1).
  { intros i Hi. specialize (S i 0 Hi HL). rewrite HR in S by exact Hi. unfold Snd in S. nia. }
  assert (Rx : forall j, j < n -> sum n (fun i => x i j 0) = 1).
  { intros j Hj. specialize (R j 0 Hj HL). rewrite HC in R by exact Hj. unfold Rcv in R. nia. }
  destruct (choice n (fun i j => j < n /\ x i j 0 = 1 /\ forall k, k < n -> k <> j -> x i k 0 = 0)) as [p Hp].
  { intros i Hi. apply (one_of n (fun j => x i j 0)). auto. }
  exists p. split; [split|].
  - intros i Hi. apply (Hp i Hi).
  - intros j Hj. rewrite <- (Rx j Hj). apply sum_ext. intros i Hi.
    destruct (Hp i Hi) as (_ & One & Others). destruct (Nat.eqb_spec (p i) j) as [<-|Ne]; [auto|].
    symmetry. apply Others; auto.
  - intros i Hi. destruct (Hp i Hi) as (Hj & One & _).
    pose proof (x_le_D n L A x F i (p i) 0 Hi Hj HL). lia.
Qed.

Lemma smallest n (f : nat -> nat) : 0 < n -> exists a, a < n /\ forall i, i < n -> f a <= f i.
Proof.
  induction n as [|n IH]; intros Hn; [lia|]. destruct n as [|n].
  - exists 0. split; [lia|]. intros i Hi. replace i with 0 by lia. lia.
  - destruct IH as (a & Ha & La); [lia|]. destruct (le_lt_dec (f a) (f (S n))) as [Le|Lt].
    + exists a. split; [lia|]. intros i Hi. destruct (Nat.eq_dec i (S n)) as [->|]; [exact Le|]. apply La; lia.
    + exists (S n). split; [lia|]. intros i Hi. destruct (Nat.eq_dec i (S n)) as [->|]; [lia|].
      specialize (La i ltac:(lia)). lia.
Qed.

(** ** What a stage leaves *)

Lemma sum_minus n f g : (forall i, i < n -> g i <= f i) -> sum n (fun i => f i - g i) + sum n g = sum n f.
Proof. intros H. rewrite <- sum_add. apply sum_ext. intros i Hi. specialize (H i Hi). lia. Qed.

Lemma sends_le n (A : nat -> nat -> nat) w p i j :
  (forall i, i < n -> w <= A i (p i)) -> i < n -> sends w p i j <= A i j.
Proof. intros H Hi. unfold sends. destruct (Nat.eqb_spec (p i) j) as [<-|]; [auto|lia]. Qed.

Lemma lines_left n L A w p : lines n L A -> matching n p -> (forall i, i < n -> w <= A i (p i)) ->
  lines n (L - w) (fun i j => A i j - sends w p i j).
Proof.
  intros [HR HC] Hm Hw. split; intros i Hi.
  - pose proof (sum_minus n (fun j => A i j) (fun j => sends w p i j) (fun j _ => sends_le n A w p i j Hw Hi)).
    pose proof (sends_row n w p i Hm Hi). specialize (HR i Hi). unfold row in *. lia.
  - pose proof (sum_minus n (fun k => A k i) (fun k => sends w p k i) (fun k Hk => sends_le n A w p k i Hw Hk)).
    pose proof (sends_col n w p i Hm Hi). specialize (HC i Hi). unfold col in *. lia.
Qed.

(** T13: the stages send the matrix, and the lengths add up to the line sum *)
Theorem T13_sent : forall n A ss, stages n A ss -> forall i j, i < n -> j < n -> sent ss i j = A i j.
Proof.
  intros n A ss H. induction H as [A H|A w p ss Hw Hm Hle Hex H IH]; intros i j Hi Hj.
  - symmetry. auto.
  - unfold sent. simpl. fold (sent ss i j). rewrite IH by auto.
    pose proof (sends_le n A w p i j Hle Hi). lia.
Qed.

Theorem T13_time : forall n L A ss, 0 < n -> lines n L A -> stages n A ss -> time ss = L.
Proof.
  intros n L A ss Hn HL H. revert L HL. induction H as [A H|A w p ss Hw Hm Hle Hex H IH]; intros L HL.
  - destruct HL as [HR _]. rewrite <- (HR 0 Hn). symmetry. apply sum_0. auto.
  - unfold time. simpl. fold (time ss). rewrite (IH (L - w)) by now apply lines_left.
    pose proof (sum_single n (fun j => A 0 j) (p 0) (proj1 Hm 0 Hn)). specialize (Hle 0 Hn).
    destruct HL as [HR _]. specialize (HR 0 Hn). unfold row in HR. lia.
Qed.

(** ** Sums of integers, and systems with more unknowns than equations *)
Section Dependent.
  Local Open Scope Z_scope.

  Fixpoint zsum (l : list nat) (f : nat -> Z) : Z :=
    match l with [] => 0 | i :: l => f i + zsum l f end.

  Lemma zsum_ext l f g : (forall i, In i l -> f i = g i) -> zsum l f = zsum l g.
  Proof.
    induction l as [|a l IH]; intros H; simpl; [auto|].
    rewrite (H a (or_introl eq_refl)), IH; auto. intros i Hi. apply H. now right.
  Qed.
  Lemma zsum_0 l f : (forall i, In i l -> f i = 0) -> zsum l f = 0.
  Proof.
    intros H. rewrite (zsum_ext l f (fun _ => 0) H). clear. induction l as [|a l IH]; simpl; auto.
  Qed.
  Lemma zsum_app l l' f : zsum (l ++ l') f = zsum l f + zsum l' f.
  Proof. induction l as [|a l IH]; simpl; lia. Qed.
  Lemma zsum_mul l c f : zsum l (fun i => c * f i) = c * zsum l f.
  Proof. induction l as [|a l IH]; simpl; lia. Qed.
  Lemma zsum_add l f g : zsum l (fun i => f i + g i) = zsum l f + zsum l g.
  Proof. induction l as [|a l IH]; simpl; lia. Qed.
  Lemma zsum_swap l l' (f : nat -> nat -> Z) :
    zsum l (fun i => zsum l' (f i)) = zsum l' (fun j => zsum l (fun i => f i j)).
  Proof.
    induction l as [|a l IH]; simpl.
    - symmetry. now apply zsum_0.
    - rewrite IH, <- zsum_add. now apply zsum_ext.
  Qed.
  Lemma zsum_nat n f : zsum (seq 0 n) (fun i => Z.of_nat (f i)) = Z.of_nat (sum n f).
  Proof. induction n as [|n IH]; [reflexivity|]. rewrite seq_S, zsum_app, IH. simpl. lia. Qed.
  Lemma zsum_only l f a : NoDup l -> In a l -> (forall i, In i l -> i <> a -> f i = 0) -> zsum l f = f a.
  Proof.
    intros ND Ha H. destruct (in_split a l Ha) as (l1 & l2 & ->). apply NoDup_remove_2 in ND.
    rewrite zsum_app. simpl. rewrite !zsum_0; [lia| |].
    - intros i Hi. apply H; [apply in_or_app; simpl; auto|]. intros ->. apply ND, in_or_app. auto.
    - intros i Hi. apply H; [apply in_or_app; simpl; auto|]. intros ->. apply ND, in_or_app. auto.
  Qed.

  (** fewer equations than unknowns [l]: a solution other than 0, in whole numbers *)
  Lemma dependent : forall (eqs : list (nat -> Z)) l, NoDup l -> (length eqs < length l)%nat ->
    exists c, (exists i, In i l /\ c i <> 0) /\ forall e, In e eqs -> zsum l (fun i => c i * e i) = 0.
  Proof.
    intros eqs. remember (length eqs) as m eqn:Em. revert eqs Em.
    induction m as [|m IH]; intros eqs Em l ND Hl; destruct eqs as [|e0 eqs]; try discriminate Em.
    - destruct l as [|a l]; simpl in Hl; [lia|]. exists (fun _ => 1). split; [|easy].
      exists a. simpl. split; [auto|lia].
    - destruct (find (fun i => negb (e0 i =? 0)) l) as [j|] eqn:Fd.
      + apply find_some in Fd. destruct Fd as [Hj Nz]. apply negb_true_iff, Z.eqb_neq in Nz.
        destruct (in_split j l Hj) as (l1 & l2 & ->).
        pose proof (NoDup_remove_1 _ _ _ ND) as ND'. pose proof (NoDup_remove_2 _ _ _ ND) as Nj.
        rewrite app_length in Hl. simpl in Hl.
        set (reduced := fun (e : nat -> Z) i => e0 j * e i - e0 i * e j).
        destruct (IH (map reduced eqs)) with (l := l1 ++ l2) as (c & (i & Hi & Ci) & Hc); auto.
        { rewrite map_length. simpl in Em. lia. }
        { rewrite app_length. lia. }
        set (rest := zsum (l1 ++ l2) (fun i => c i * e0 i)).
        set (d := fun i => if (i =? j)%nat then - rest else e0 j * c i).
        assert (Out : forall e, zsum (l1 ++ j :: l2) (fun i => d i * e i)
            = zsum (l1 ++ l2) (fun i => e0 j * (c i * e i)) - rest * e j).
        { intros e. transitivity (zsum (l1 ++ l2) (fun i => d i * e i) + d j * e j).
          - rewrite !zsum_app. simpl. lia.
          - unfold d at 2. rewrite Nat.eqb_refl.
            rewrite (zsum_ext _ _ (fun i => e0 j * (c i * e i))); [lia|]. intros k Hk. unfold d.
            destruct (Nat.eqb_spec k j) as [->|]; [contradiction|lia]. }
        exists d. split.
        * exists i. split; [apply in_app_iff in Hi; apply in_or_app; simpl; tauto|]. unfold d.
          destruct (Nat.eqb_spec i j) as [->|]; [contradiction|]. now apply Z.neq_mul_0.
        * intros e [<-|He]; rewrite Out, zsum_mul; [fold rest; ring|].
          specialize (Hc (reduced e) (in_map _ _ _ He)). unfold reduced in Hc.
          rewrite (zsum_ext _ _ (fun i => e0 j * (c i * e i) + - e j * (c i * e0 i))) in Hc by (intros; lia).
          rewrite zsum_add, !zsum_mul in Hc. unfold rest. lia.
      + destruct (IH eqs ltac:(simpl in Em; lia) l ND ltac:(lia)) as (c & Nz & Hc).
        exists c. split; [exact Nz|]. intros e [<-|He]; [|auto].
        apply zsum_0. intros i Hi. pose proof (find_none _ _ Fd i Hi) as E.
        apply negb_false_iff, Z.eqb_eq in E. rewrite E. lia.
  Qed.
End Dependent.

(** ** At most n^2 - 2n + 2 stages *)

Section Count.
  Variables (n : nat) (ps : list (nat -> nat)).
  Hypothesis matchings : forall p, In p ps -> matching n p.
  (** matching number s uses an entry that no later one uses *)
  Hypothesis empties : forall s, s < length ps -> exists i j, i < n /\ j < n /\
    nth s ps id i = j /\ forall t, s < t -> t < length ps -> nth t ps id i <> j.
  Local Open Scope Z_scope.

  Let l := seq 0 (length ps).
  Let P (i j s : nat) : Z := Z.of_nat (sends 1 (nth s ps id) i j).

  Lemma is_matching s : In s l -> matching n (nth s ps id).
  Proof. intros Hs. apply in_seq in Hs. apply matchings, nth_In. lia. Qed.

  (** a sum of the matchings that is 0 on the first n - 1 rows and columns, with factors that add
      up to 0, is 0 everywhere *)
  Lemma zero_everywhere c : zsum l (fun s => c s * 1) = 0 ->
    (forall i j, (i < n - 1)%nat -> (j < n - 1)%nat -> zsum l (fun s => c s * P i j s) = 0) ->
    forall i j, (i < n)%nat -> (j < n)%nat -> zsum l (fun s => c s * P i j s) = 0.
  Proof.
    intros H1 HP.
    assert (Rows : forall i, (i < n)%nat -> zsum (seq 0 n) (fun j => zsum l (fun s => c s * P i j s)) = 0).
    { intros i Hi. rewrite zsum_swap, <- H1. apply zsum_ext. intros s Hs. rewrite zsum_mul. f_equal.
      unfold P. rewrite zsum_nat. change 1 with (Z.of_nat 1). f_equal.
      exact (sends_row n 1 _ i (is_matching s Hs) Hi). }
    assert (Cols : forall j, (j < n)%nat -> zsum (seq 0 n) (fun i => zsum l (fun s => c s * P i j s)) = 0).
    { intros j Hj. rewrite zsum_swap, <- H1. apply zsum_ext. intros s Hs. rewrite zsum_mul. f_equal.
      unfold P. rewrite zsum_nat. change 1 with (Z.of_nat 1). f_equal.
      exact (sends_col n 1 _ j (is_matching s Hs) Hj). }
    assert (Last : forall f, zsum (seq 0 n) f = 0 -> (forall k, (k < n - 1)%nat -> f k = 0) ->
        forall k, (k < n)%nat -> f k = 0).
    { intros f Hf Hz k Hk. destruct (Nat.eq_dec k (n - 1)) as [->|]; [|apply Hz; lia].
      rewrite (zsum_only (seq 0 n) f (n - 1)) in Hf; [exact Hf|apply seq_NoDup|apply in_seq; lia|].
      intros m Hm Ne. apply in_seq in Hm. apply Hz. lia. }
    assert (Top : forall i j, (i < n - 1)%nat -> (j < n)%nat -> zsum l (fun s => c s * P i j s) = 0).
    { intros i j Hi Hj. apply (Last (fun j => zsum l (fun s => c s * P i j s))); auto. apply Rows. lia. }
    intros i j Hi Hj. apply (Last (fun i => zsum l (fun s => c s * P i j s))); auto.
  Qed.

  Lemma independent c : (forall i j, (i < n)%nat -> (j < n)%nat -> zsum l (fun s => c s * P i j s) = 0) ->
    forall s, (s < length ps)%nat -> c s = 0.
  Proof.
    intros H s. induction s as [s IH] using lt_wf_ind. intros Hs.
    destruct (empties s Hs) as (i & j & Hi & Hj & E & Later). specialize (H i j Hi Hj).
    rewrite (zsum_only l _ s) in H; [|apply seq_NoDup|apply in_seq; lia|].
    - unfold P, sends in H. rewrite E, Nat.eqb_refl in H. lia.
    - intros t Ht Ne. apply in_seq in Ht. destruct (lt_dec t s) as [Lt|Ge].
      + rewrite (IH t Lt) by lia. lia.
      + unfold P, sends. specialize (Later t ltac:(lia) ltac:(lia)). apply Nat.eqb_neq in Later.
        rewrite Later. lia.
  Qed.

  Lemma at_most : (length ps <= (n - 1) * (n - 1) + 1)%nat.
  Proof.
    set (square := list_prod (seq 0 (n - 1)) (seq 0 (n - 1))).
    set (eqs := (fun _ => 1) :: map (fun ij => P (fst ij) (snd ij)) square).
    destruct (le_lt_dec (length ps) ((n - 1) * (n - 1) + 1)) as [Le|Lt]; [exact Le|exfalso].
    destruct (dependent eqs l) as (c & (s & Hs & Nz) & Hc).
    - apply seq_NoDup.
    - unfold eqs, square, l. simpl. rewrite map_length, prod_length, !seq_length. lia.
    - apply Nz. apply independent; [|apply in_seq in Hs; lia]. apply zero_everywhere.
      + apply (Hc (fun _ => 1)). now left.
      + intros i j Hi Hj. apply (Hc (P i j)). right. apply in_map_iff. exists (i, j).
        split; [reflexivity|]. apply in_prod; apply in_seq; lia.
  Qed.
End Count.

(** an entry that is empty stays so, and no stage uses it *)
Lemma unused n A ss : stages n A ss -> forall i j, i < n -> A i j = 0 ->
  forall p, In p (map snd ss) -> p i <> j.
Proof.
  intros H. induction H as [A H|A w p ss Hw Hm Hle Hex H IH]; intros i j Hi Z q Hq; [easy|].
  destruct Hq as [<-|Hq].
  - simpl. intros <-. specialize (Hle i Hi). lia.
  - apply (IH i j Hi); [lia|exact Hq].
Qed.

(** T13: whatever matchings are chosen, there are at most n^2 - 2n + 2 *)
Theorem T13_count : forall n A ss, stages n A ss -> length ss + 2 * n <= n * n + 2.
Proof.
  intros n A ss H.
  assert (B : length (map snd ss) <= (n - 1) * (n - 1) + 1).
  { apply (at_most n).
    - induction H as [|A w p ss Hw Hm Hle Hex H IH]; simpl; [easy|]. intros q [<-|Hq]; auto.
    - induction H as [|A w p ss Hw Hm Hle Hex H IH]; simpl; [lia|]. intros [|s] Hs.
      + destruct Hex as (i & Hi & E). exists i, (p i). split; [exact Hi|]. split; [now apply Hm|].
        split; [reflexivity|]. intros [|t] Ht Lt; [lia|]. apply (unused n _ ss H i (p i) Hi).
        * unfold sends. rewrite Nat.eqb_refl. lia.
        * apply nth_In. lia.
      + destruct (IH s ltac:(lia)) as (i & j & Hi & Hj & E & Later). exists i, j. repeat split; auto.
        intros [|t] Ht Lt; [lia|]. apply Later; lia. }
  rewrite map_length in B. destruct n as [|n]; [|nia].
  destruct H as [|A w p ss Hw Hm Hle (i & Hi & _) H]; [simpl|]; lia.
Qed.

(** ** Filling up, and all of it together *)

Lemma lines_stages n : 0 < n -> forall L A, lines n L A -> exists ss, stages n A ss.
Proof.
  intros Hn L. induction L as [L IH] using lt_wf_ind. intros A HL.
  destruct (Nat.eq_dec L 0) as [->|Nz].
  - exists []. constructor. intros i j Hi Hj. destruct HL as [HR _]. specialize (HR i Hi).
    pose proof (sum_single n (fun j => A i j) j Hj). unfold row in HR. lia.
  - destruct (T13_matching n L A HL ltac:(lia)) as (p & Hm & Pos).
    destruct (smallest n (fun i => A i (p i)) Hn) as (a & Ha & La).
    destruct (IH (L - A a (p a))) with (A := fun i j => A i j - sends (A a (p a)) p i j) as (ss & Hss).
    + specialize (Pos a Ha). lia.
    + now apply lines_left.
    + exists ((A a (p a), p) :: ss). constructor; eauto.
Qed.

Lemma row_add n A B i : row n (fun i j => A i j + B i j) i = row n A i + row n B i.
Proof. apply sum_add. Qed.
Lemma col_add n A B j : col n (fun i j => A i j + B i j) j = col n A j + col n B j.
Proof. apply sum_add. Qed.

Definition less (f : nat -> nat) (a v : nat) : nat -> nat := fun i => if i =? a then f i - v else f i.

(** FAST's filling: entry by entry as many virtual bytes as its row, which can take [a i] more, and
    its column, which can take [b j] more, both can take *)
Fixpoint fill (entries : list (nat * nat)) (a b : nat -> nat) : nat -> nat -> nat :=
  match entries with
  | [] => fun _ _ => 0
  | (i, j) :: entries =>
      let v := Nat.min (a i) (b j) in
      fun r c => (if r =? i then if c =? j then v else 0 else 0) + fill entries (less a i v) (less b j v) r c
  end.

Definition virtual (n L : nat) (D : nat -> nat -> nat) : nat -> nat -> nat :=
  fill (list_prod (seq 0 n) (seq 0 n)) (fun i => L - row n D i) (fun j => L - col n D j).

(** what rows and columns can take in the end: nothing in the row or nothing in the column of any entry *)
Lemma fill_left n : forall entries a b, (forall i j, In (i, j) entries -> i < n /\ j < n) ->
  exists a' b', (forall i, i < n -> row n (fill entries a b) i + a' i = a i) /\
    (forall j, j < n -> col n (fill entries a b) j + b' j = b j) /\
    (forall i j, In (i, j) entries -> a' i = 0 \/ b' j = 0).
Proof.
  induction entries as [|[x y] entries IH]; intros a b Hin.
  - exists a, b. unfold row, col. simpl. repeat split; try easy; intros i _; now rewrite sum_0.
  - set (v := Nat.min (a x) (b y)).
    destruct (IH (less a x v) (less b y v)) as (a' & b' & Ra & Rb & Done).
    { intros i j H. apply Hin. now right. }
    destruct (Hin x y (or_introl eq_refl)) as [Hx Hy].
    assert (Ea : a' x <= a x - v).
    { specialize (Ra x Hx). unfold less at 3 in Ra. rewrite Nat.eqb_refl in Ra. lia. }
    assert (Eb : b' y <= b y - v).
    { specialize (Rb y Hy). unfold less at 3 in Rb. rewrite Nat.eqb_refl in Rb. lia. }
    exists a', b'. simpl. fold v. split; [|split].
    + intros i Hi. rewrite row_add. specialize (Ra i Hi). unfold less at 3 in Ra. unfold row at 1.
      destruct (i =? x) eqn:E; [|rewrite sum_0 by auto; lia]. apply Nat.eqb_eq in E. subst i.
      rewrite (sum_pick n y (fun _ => v)) by exact Hy. lia.
    + intros j Hj. rewrite col_add. specialize (Rb j Hj). unfold less at 3 in Rb. unfold col at 1.
      destruct (j =? y) eqn:E.
      * apply Nat.eqb_eq in E. subst j. rewrite (sum_pick n x (fun _ => v)) by exact Hx. lia.
      * rewrite sum_0 by (intros i _; destruct (i =? x); auto). lia.
    + intros i j [E|H]; [injection E as <- <-; lia|auto].
Qed.

(** T13: the filling makes all lines equal *)
Theorem T13_fill : forall n L D,
  (forall i, i < n -> row n D i <= L) -> (forall j, j < n -> col n D j <= L) ->
  lines n L (fun i j => D i j + virtual n L D i j).
Proof.
  intros n L D HR HC.
  destruct (fill_left n (list_prod (seq 0 n) (seq 0 n)) (fun i => L - row n D i) (fun j => L - col n D j))
    as (a & b & Ra & Rb & Done).
  { intros i j H. apply in_prod_iff in H. rewrite !in_seq in H. lia. }
  fold (virtual n L D) in Ra, Rb. set (V := virtual n L D) in *.
  assert (Same : sum n a = sum n b).
  { assert (E1 : sum n (fun i => L - row n D i) + sum n (row n D) = n * L)
      by (rewrite <- (sum_const n L); exact (sum_minus n (fun _ => L) (row n D) HR)).
    assert (E2 : sum n (fun j => L - col n D j) + sum n (col n D) = n * L)
      by (rewrite <- (sum_const n L); exact (sum_minus n (fun _ => L) (col n D) HC)).
    assert (E3 : sum n (row n D) = sum n (col n D)) by exact (sum_swap n n D).
    assert (E4 : sum n (row n V) = sum n (col n V)) by exact (sum_swap n n V).
    assert (E5 : sum n (row n V) + sum n a = sum n (fun i => L - row n D i))
      by (rewrite <- sum_add; exact (sum_ext n _ _ Ra)).
    assert (E6 : sum n (col n V) + sum n b = sum n (fun j => L - col n D j))
      by (rewrite <- sum_add; exact (sum_ext n _ _ Rb)).
    lia. }
  assert (None : sum n a = 0).
  { destruct (Nat.eq_dec (sum n a) 0) as [E|E]; [exact E|]. exfalso.
    destruct (sum_pigeon n 0 a) as (i & Hi & Ai); [lia|].
    destruct (sum_pigeon n 0 b) as (j & Hj & Bj); [lia|].
    destruct (Done i j); [|lia|lia]. apply in_prod; apply in_seq; lia. }
  split; intros i Hi.
  - rewrite row_add. specialize (Ra i Hi). specialize (HR i Hi). pose proof (sum_single n a i Hi). simpl in Ra. lia.
  - rewrite col_add. specialize (Rb i Hi). specialize (HC i Hi). pose proof (sum_single n b i Hi). simpl in Rb. lia.
Qed.

(** T13: whatever the matrix [D], with at most [L] bytes in any line: filled up it is sent in stages
    whose lengths add up to [L], at most n^2 - 2n + 2 of them *)
Theorem T13_birkhoff : forall n L D, 0 < n ->
  (forall i, i < n -> row n D i <= L) -> (forall j, j < n -> col n D j <= L) ->
  exists ss, stages n (fun i j => D i j + virtual n L D i j) ss /\
    time ss = L /\ length ss + 2 * n <= n * n + 2.
Proof.
  intros n L D Hn HR HC. pose proof (T13_fill n L D HR HC) as HL.
  destruct (lines_stages n Hn L _ HL) as (ss & Hss). exists ss. split; [exact Hss|].
  split; [exact (T13_time n L _ ss Hn HL Hss)|exact (T13_count n _ ss Hss)].
Qed.
