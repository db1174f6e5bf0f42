(** * Finite sums over natural indices

    Everything about loads below is a statement about sums [f 0 + ... + f (n-1)]:
    they may be compared term by term, exchanged, and searched for a large term. *)
From Coq Require Import Arith Lia List.

(** [sum n f] = f 0 + ... + f (n-1) *)
Fixpoint sum (n : nat) (f : nat -> nat) : nat :=
  match n with 0 => 0 | S m => sum m f + f m end.

(** [count n P]: how many i < n satisfy P *)
Definition count (n : nat) (P : nat -> bool) : nat :=
  sum n (fun i => if P i then 1 else 0).

(** ** Algebra *)

Lemma sum_ext n f g : (forall i, i < n -> f i = g i) -> sum n f = sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; auto.
  rewrite IH by (intros; apply H; lia). rewrite H by lia. reflexivity.
Qed.

Lemma sum_le n f g : (forall i, i < n -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; auto.
  assert (sum n f <= sum n g) by (apply IH; intros; apply H; lia).
  specialize (H n ltac:(lia)). lia.
Qed.

Lemma sum_mul n c f : c * sum n f = sum n (fun i => c * f i).
Proof. induction n as [|n IH]; simpl; [lia|]. rewrite <- IH. lia. Qed.

Lemma sum_add n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n as [|n IH]; simpl; lia. Qed.

Lemma sum_const n c : sum n (fun _ => c) = n * c.
Proof. induction n as [|n IH]; simpl; lia. Qed.

Lemma sum_0 n f : (forall i, i < n -> f i = 0) -> sum n f = 0.
Proof. intros H. rewrite (sum_ext n f (fun _ => 0) H), sum_const. lia. Qed.

Lemma sum_swap m n f :
  sum m (fun i => sum n (fun j => f i j)) = sum n (fun j => sum m (fun i => f i j)).
Proof.
  induction m as [|m IH]; simpl.
  - symmetry; apply sum_0; auto.
  - rewrite IH, <- sum_add. apply sum_ext; auto.
Qed.

Lemma sum_single n f i : i < n -> f i <= sum n f.
Proof.
  induction n as [|n IH]; intros H; [lia|]. simpl.
  destruct (Nat.eq_dec i n) as [->|]; [lia|]. specialize (IH ltac:(lia)). lia.
Qed.

(** ** Sums with one non-zero term *)

Lemma sum_ind n a : sum n (fun i => if i =? a then 1 else 0) = if a <? n then 1 else 0.
Proof.
  induction n as [|n IH]; simpl; auto.
  rewrite IH. destruct (Nat.eqb_spec n a), (Nat.ltb_spec a n), (Nat.ltb_spec a (S n)); lia.
Qed.

Lemma sum_pick n a g : a < n -> sum n (fun i => if i =? a then g i else 0) = g a.
Proof.
  intros H. rewrite (sum_ext n _ (fun i => g a * (if i =? a then 1 else 0))).
  - rewrite <- sum_mul, sum_ind. apply Nat.ltb_lt in H. rewrite H. lia.
  - intros i _. destruct (Nat.eqb_spec i a) as [->|]; lia.
Qed.

Lemma sum_unique n a P :
  a < n -> (forall i, i < n -> P i = true <-> i = a) ->
  sum n (fun i => if P i then 1 else 0) = 1.
Proof.
  intros Ha H.
  rewrite (sum_ext n _ (fun i => if i =? a then 1 else 0)).
  - rewrite sum_ind. apply Nat.ltb_lt in Ha. now rewrite Ha.
  - intros i Hi. specialize (H i Hi).
    destruct (P i), (Nat.eqb_spec i a); auto; [destruct H as [H _]|destruct H as [_ H]];
      intuition congruence.
Qed.

(** ** Averages: all terms at least b, all at most b, some term above b *)

Lemma sum_ge_const n b f : (forall i, i < n -> b <= f i) -> n * b <= sum n f.
Proof. intros H. rewrite <- sum_const. now apply sum_le. Qed.

Lemma sum_le_const n b f : (forall i, i < n -> f i <= b) -> sum n f <= n * b.
Proof. intros H. rewrite <- sum_const. now apply sum_le. Qed.

Lemma sum_pigeon n b f : n * b < sum n f -> exists i, i < n /\ b < f i.
Proof.
  induction n as [|n IH]; simpl; intros H; [lia|].
  destruct (le_lt_dec (f n) b) as [Hle|Hlt].
  - destruct IH as [i [Hi Hb]]; [lia|]. exists i; split; [lia|auto].
  - exists n; split; [lia|auto].
Qed.
