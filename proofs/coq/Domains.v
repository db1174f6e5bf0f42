(** * T12: the most equal parting of n members into m domains is the best *)
From Coq Require Import Arith Lia List.
Import ListNotations.

(** [parts] are the sizes of m domains that have n members together *)
Definition parting (n m : nat) (parts : list nat) : Prop := length parts = m /\ list_sum parts = n.

(** q + 1 members in n mod m domains and q in the others, q = n / m *)
Definition equal_parts (n m : nat) : list nat := repeat (S (n / m)) (n mod m) ++ repeat (n / m) (m - n mod m).

Lemma sum_repeat x k : list_sum (repeat x k) = k * x.
Proof. induction k as [|k IH]; [reflexivity|]. cbn [repeat list_sum fold_right]. fold (list_sum (repeat x k)). rewrite IH. lia. Qed.

Lemma sum_le_largest parts x : (forall p, In p parts -> p <= x) -> list_sum parts <= length parts * x.
Proof.
  induction parts as [|p parts IH]; intros H; [simpl; lia|]. cbn [list_sum fold_right length]. fold (list_sum parts).
  pose proof (H p (or_introl eq_refl)). specialize (IH (fun q Hq => H q (or_intror Hq))). lia.
Qed.

Lemma sum_ge_smallest parts x : (forall p, In p parts -> x <= p) -> length parts * x <= list_sum parts.
Proof.
  induction parts as [|p parts IH]; intros H; [simpl; lia|]. cbn [list_sum fold_right length]. fold (list_sum parts).
  pose proof (H p (or_introl eq_refl)). specialize (IH (fun q Hq => H q (or_intror Hq))). lia.
Qed.

(** whatever the parting, some domain has n / m rounded up or more, and some n / m rounded down or fewer *)
Theorem T12_largest : forall n m parts, 0 < m -> parting n m parts ->
  forall x, (forall p, In p parts -> p <= x) -> (n + (m - 1)) / m <= x.
Proof.
  intros n m parts Hm [L S] x H. apply sum_le_largest in H. rewrite L, S in H.
  apply Nat.lt_succ_r. apply Nat.div_lt_upper_bound; nia.
Qed.

Theorem T12_smallest : forall n m parts, 0 < m -> parting n m parts ->
  forall x, (forall p, In p parts -> x <= p) -> x <= n / m.
Proof.
  intros n m parts Hm [L S] x H. apply sum_ge_smallest in H. rewrite L, S in H.
  apply Nat.div_le_lower_bound; lia.
Qed.

(** and the most equal one has no larger and no smaller domain than these *)
Theorem T12_equal : forall n m, 0 < m -> parting n m (equal_parts n m) /\
  forall p, In p (equal_parts n m) -> n / m <= p <= (n + (m - 1)) / m.
Proof.
  intros n m Hm. pose proof (Nat.div_mod_eq n m) as E. pose proof (Nat.mod_upper_bound n m ltac:(lia)) as B. unfold equal_parts. split.
  - split.
    + rewrite app_length, !repeat_length. lia.
    + rewrite list_sum_app, !sum_repeat. nia.
  - intros p I. apply in_app_or in I. destruct I as [I|I].
    + assert (0 < n mod m) by (destruct (n mod m); [easy|lia]). apply repeat_spec in I. subst p. split; [lia|].
      apply Nat.div_le_lower_bound; nia.
    + apply repeat_spec in I. subst p. split; [lia|]. apply Nat.div_le_mono; lia.
Qed.
