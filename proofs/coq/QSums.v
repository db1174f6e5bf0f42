(** * Finite sums of rationals, for times and for traffic that may be divided at will *)
From Coq Require Import Arith NArith QArith Lia Lqa List.
Open Scope Q_scope.

Fixpoint qsum (n : nat) (f : nat -> Q) : Q :=
  match n with O => 0 | S m => qsum m f + f m end.

Lemma qsum_ext n f g : (forall i, (i < n)%nat -> f i == g i) -> qsum n f == qsum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [reflexivity|].
  rewrite IH by (intros; apply H; lia). rewrite (H n) by lia. reflexivity.
Qed.

Lemma qsum_le n f g : (forall i, (i < n)%nat -> f i <= g i) -> qsum n f <= qsum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [apply Qle_refl|].
  apply Qplus_le_compat; [apply IH; intros; apply H; lia|apply H; lia].
Qed.

Lemma qsum_mul n c f : qsum n (fun i => c * f i) == c * qsum n f.
Proof. induction n as [|n IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma qsum_add n f g : qsum n (fun i => f i + g i) == qsum n f + qsum n g.
Proof. induction n as [|n IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma qsum_zero n f : (forall i, (i < n)%nat -> f i == 0) -> qsum n f == 0.
Proof.
  induction n as [|n IH]; intros H; simpl; [reflexivity|].
  rewrite IH by (intros; apply H; lia). rewrite (H n) by lia. reflexivity.
Qed.

Lemma qsum_swap m n f :
  qsum m (fun i => qsum n (fun j => f i j)) == qsum n (fun j => qsum m (fun i => f i j)).
Proof.
  induction m as [|m IH]; simpl.
  - symmetry. now apply qsum_zero.
  - rewrite IH. rewrite <- qsum_add. apply qsum_ext. intros. reflexivity.
Qed.

Lemma qsum_nonneg n f : (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= qsum n f.
Proof.
  intros H. rewrite <- (qsum_zero n (fun _ => 0)) by reflexivity. now apply qsum_le.
Qed.

Lemma qsum_single n f i : (i < n)%nat -> (forall j, (j < n)%nat -> 0 <= f j) -> f i <= qsum n f.
Proof.
  induction n as [|n IH]; intros H P; [lia|]. simpl.
  destruct (Nat.eq_dec i n) as [->|].
  - assert (0 <= qsum n f) by (apply qsum_nonneg; intros; apply P; lia). lra.
  - assert (f i <= qsum n f) by (apply IH; [lia|intros; apply P; lia]).
    assert (0 <= f n) by (apply P; lia). lra.
Qed.

Lemma qsum_const n c : qsum n (fun _ => c) == inject_Z (Z.of_nat n) * c.
Proof.
  induction n as [|n IH]; simpl qsum; [ring|]. rewrite IH, Nat2Z.inj_succ, <- Z.add_1_r, inject_Z_plus. ring.
Qed.

(** a sum with one term picked out *)
Lemma qsum_pick n f a : (a < n)%nat ->
  qsum n f == f a + qsum n (fun i => if (i =? a)%nat then 0 else f i).
Proof.
  induction n as [|n IH]; intros H; [lia|]. simpl. destruct (Nat.eq_dec a n) as [->|].
  - rewrite Nat.eqb_refl. rewrite (qsum_ext n (fun i => if (i =? n)%nat then 0 else f i) f); [ring|].
    intros i Hi. destruct (Nat.eqb_spec i n); [lia|reflexivity].
  - destruct (Nat.eqb_spec n a); [lia|]. rewrite IH by lia. ring.
Qed.

(** whole numbers as rationals *)
Definition nq (n : N) : Q := inject_Z (Z.of_N n).

Lemma nq_nonneg n : 0 <= nq n.
Proof. unfold nq, Qle, inject_Z. simpl. lia. Qed.
Lemma nq_add a b : nq (a + b) == nq a + nq b.
Proof. unfold nq. now rewrite N2Z.inj_add, inject_Z_plus. Qed.
Lemma nq_mul a b : nq (a * b) == nq a * nq b.
Proof. unfold nq. now rewrite N2Z.inj_mul, inject_Z_mult. Qed.
Lemma nq_le a b : (a <= b)%N -> nq a <= nq b.
Proof. intros H. unfold nq, Qle, inject_Z. simpl. lia. Qed.
Lemma nq_pos a : (0 < a)%N -> 0 < nq a.
Proof. intros H. unfold nq, Qlt, inject_Z. simpl. lia. Qed.

Definition nsum (n : nat) (f : nat -> N) : N := fold_right N.add 0%N (map f (seq 0 n)).

Lemma nsum_S n f : nsum (S n) f = (nsum n f + f n)%N.
Proof.
  unfold nsum. rewrite seq_S, map_app. simpl. generalize (map f (seq 0 n)) as l.
  induction l as [|a l IH]; simpl; lia.
Qed.

Lemma nsum_q n f : nq (nsum n f) == qsum n (fun i => nq (f i)).
Proof. induction n as [|n IH]; [reflexivity|]. rewrite nsum_S, nq_add, IH. reflexivity. Qed.
