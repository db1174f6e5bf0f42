(** * Certificates of spare slots: experts on GPUs, copies, and shares of a micro-batch's tokens

    Sets of experts are numbers: bit [e] stands for expert [e].  [Spare] has the argument; here are
    the lists that a certificate has, the check of its bound and the check of its shares. *)
From Coq Require Import Arith NArith QArith Lia List Bool.
From Rails Require Import Sums Loads.
From Rails Require Jobs Spare.
Import ListNotations.
Open Scope N_scope.

(** ** The instance: tokens of experts; what GPUs hold, their spare slots, their nodes *)

Definition tokens_for (counts : list N) (e : nat) : nat := N.to_nat (nth e counts 0).
Definition has (sets : list N) (r e : nat) : bool := N.testbit (nth r sets 0) (N.of_nat e).

(** what the GPUs of node [n] hold *)
Definition of_node (node holds : list N) (n : N) : N :=
  fold_right N.lor 0 (map snd (filter (fun z => fst z =? n) (combine node holds))).
(** of every GPU, the experts that its node holds: copies stay on such nodes, where nodes are given *)
Definition reach (holds : list N) (node : option (list N)) : option (list N) :=
  option_map (fun node => map (of_node node holds) node) node.

Definition slots_of (holds spare : list N) (near : option (list N)) : Spare.slots :=
  Spare.Slots (has holds) (fun r e => match near with None => true | Some sets => has sets r e end)
    (fun r => N.to_nat (nth r spare 0)).

(** copies [y], and [x r e] tokens of expert [e] on GPU [r] *)
Definition splits (counts holds spare : list N) (node : option (list N)) (y : nat -> nat -> bool) (x : nat -> nat -> nat) : Prop :=
  Spare.plan (length holds) (length counts) (tokens_for counts) (slots_of holds spare (reach holds node)) y x.

Definition none_over (counts holds : list N) (x : nat -> nat -> nat) (most : nat) : Prop :=
  forall r, (r < length holds)%nat -> (sum (length counts) (x r) <= most)%nat.

(** the fullest GPU has at least [b] tokens, whatever the copies and the split *)
Definition split_bounded (counts holds spare : list N) (node : option (list N)) (b : Q) : Prop :=
  forall y x most, splits counts holds spare node y x -> none_over counts holds x most -> (b <= inject_Z (Z.of_nat most))%Q.

(** ** Numbers of a list, found by index in a tree *)

Fixpoint filled (l : list N) (i : N) (t : tree) : tree :=
  match l with [] => t | v :: l => filled l (i + 1) (add t i v) end.
Definition table (l : list N) : tree := filled l 0 (zeros (depth_of (N.of_nat (length l)))).

Lemma entry_filled d : forall l i t j, even_depth d t -> i + N.of_nat (length l) <= 2 ^ N.of_nat d -> j < 2 ^ N.of_nat d ->
  entry (filled l i t) j = entry t j + if i <=? j then nth (N.to_nat (j - i)) l 0 else 0.
Proof.
  induction l as [|v l IH]; intros i t j D H Hj; cbn [filled].
  - destruct (i <=? j); [|lia]. destruct (N.to_nat (j - i)); cbn; lia.
  - cbn [length] in H. rewrite IH, (entry_add d) by (auto using add_depth; lia).
    destruct (N.leb_spec (i + 1) j), (N.leb_spec i j), (N.eqb_spec i j) as [E|E]; try lia.
    + replace (N.to_nat (j - i)) with (S (N.to_nat (j - (i + 1)))) by lia. cbn [nth]. lia.
    + subst j. rewrite N.sub_diag. cbn. lia.
Qed.

Lemma entry_table l r : (r < length l)%nat -> entry (table l) (N.of_nat r) = nth r l 0.
Proof.
  intros H. unfold table. pose proof (depth_enough (N.of_nat (length l))) as D.
  rewrite (entry_filled (depth_of (N.of_nat (length l)))); [|apply zeros_depth|lia|lia].
  rewrite entry_zeros. destruct (N.leb_spec 0 (N.of_nat r)); [|lia]. rewrite N.sub_0_r, Nat2N.id. lia.
Qed.

(** ** The check of a bound *)

Definition copies := Spare.witness.

(** a case is of a copy that can be made; rooms are of experts that there are *)
Fixpoint sensible (R E : nat) (k : Spare.slots) (w : copies) : bool :=
  match w with
  | Spare.Room es => forallb (fun e => (e <? E)%nat) es
  | Spare.Cases e r w1 w2 =>
      (e <? E)%nat && (r <? R)%nat && (0 <? Spare.spare k r)%nat && negb (Spare.holds k r e) && Spare.may k r e
      && sensible R E (Spare.with_copy k r e) w1 && sensible R E (Spare.without_copy k r e) w2
  end.

Definition looked_up (holds spare : tree) (near : option tree) : Spare.slots :=
  Spare.Slots (fun r e => N.testbit (entry holds (N.of_nat r)) (N.of_nat e))
    (fun r e => match near with None => true | Some sets => N.testbit (entry sets (N.of_nat r)) (N.of_nat e) end)
    (fun r => N.to_nat (entry spare (N.of_nat r))).

Definition check_slots (R E : nat) (counts : tree) (k : Spare.slots) (w : copies) (p : N) (q : positive) : bool :=
  sensible R E k w
  && ((p =? 0) || Spare.shows R E (fun e => N.to_nat (entry counts (N.of_nat e))) k (N.to_nat ((p - 1) / Npos q)) w).

Definition as_long (holds : list N) (l : list N) : bool := (length l =? length holds)%nat.
Definition same_gpus (holds spare : list N) (node : option (list N)) : bool :=
  as_long holds spare && match node with None => true | Some node => as_long holds node end.

Definition check_split (counts holds spare : list N) (node : option (list N)) (w : copies) (p : N) (q : positive) : bool :=
  same_gpus holds spare node
  && check_slots (length holds) (length counts) (table counts)
       (looked_up (table holds) (table spare) (option_map table (reach holds node))) w p q.

Lemma exceeds_same R E c c' k k' T :
  (forall e, (e < E)%nat -> c e = c' e) ->
  (forall r e, (r < R)%nat -> (e < E)%nat -> Spare.holds k r e = Spare.holds k' r e /\ Spare.may k r e = Spare.may k' r e) ->
  (forall r, (r < R)%nat -> Spare.spare k r = Spare.spare k' r) ->
  Spare.exceeds R E c k T -> Spare.exceeds R E c' k' T.
Proof.
  intros Hc Hk Hs X y x (Y & S & F & C). apply (X y x). repeat split.
  - intros r e Hr He H. rewrite (proj2 (Hk r e Hr He)). now apply Y.
  - intros r Hr. rewrite Hs by exact Hr. now apply S.
  - intros r e Hr He H. rewrite (proj1 (Hk r e Hr He)). now apply F.
  - intros e He. rewrite Hc by exact He. now apply C.
Qed.

Theorem T15_split : forall counts holds spare node w p q, check_split counts holds spare node w p q = true ->
  split_bounded counts holds spare node (Z.of_N p # q).
Proof.
  unfold check_split, check_slots, same_gpus, as_long. intros counts holds spare node w p q H y x most P M.
  apply andb_prop in H. destruct H as [L H]. apply andb_prop in L. destruct L as [Ls Ln]. apply Nat.eqb_eq in Ls.
  apply andb_prop in H. destruct H as [_ H]. apply orb_prop in H. destruct H as [H|H].
  { apply N.eqb_eq in H. subst p. unfold Qle. cbn. lia. }
  apply Spare.T15_witness in H.
  eapply (exceeds_same _ _ _ (tokens_for counts) _ (slots_of holds spare (reach holds node))) in H.
  - destruct (H y x P) as (r & Hr & T). specialize (M r Hr).
    assert (D : p - 1 < Npos q * ((p - 1) / Npos q) + Npos q).
    { pose proof (N.div_mod (p - 1) (Npos q)). pose proof (N.mod_lt (p - 1) (Npos q)). lia. }
    assert (B : p <= N.of_nat most * Npos q) by nia.
    unfold Qle. cbn [Qnum Qden inject_Z]. rewrite Z.mul_1_r. apply N2Z.inj_le in B. rewrite N2Z.inj_mul, nat_N_Z in B. exact B.
  - intros e He. unfold tokens_for. now rewrite entry_table.
  - intros r e Hr He. cbn [Spare.holds Spare.may looked_up slots_of]. unfold has. rewrite entry_table by exact Hr. split; [reflexivity|].
    destruct node as [node|]; [|reflexivity]. apply Nat.eqb_eq in Ln. cbn [reach option_map]. rewrite entry_table; [reflexivity|].
    now rewrite map_length, Ln.
  - intros r Hr. cbn [Spare.spare looked_up slots_of]. now rewrite entry_table by lia.
Qed.

(** ** The check of shares: how many of an expert's tokens go to which GPU *)

Record share := Share { expert : nat; gpu : nat; tokens : N }.

Definition on (r e : nat) (s : share) : bool := (gpu s =? r)%nat && (expert s =? e)%nat.
Fixpoint tokens_where (P : share -> bool) (l : list share) : N :=
  match l with [] => 0 | s :: l => if P s then tokens s + tokens_where P l else tokens_where P l end.

Definition dealt (l : list share) (r e : nat) : nat := N.to_nat (tokens_where (on r e) l).
Definition copied (holds : list N) (l : list share) (r e : nat) : bool := negb (has holds r e) && existsb (on r e) l.

(** the shares are such a split, and [v] is what the fullest GPU has *)
Definition split_takes (counts holds spare : list N) (node : option (list N)) (l : list share) (v : Q) : Prop :=
  splits counts holds spare node (copied holds l) (dealt l) /\
  exists most, (inject_Z (Z.of_nat most) == v)%Q /\ none_over counts holds (dealt l) most /\
    exists r, (r < length holds)%nat /\ sum (length counts) (dealt l r) = most.

Definition copies_on (holds : list N) (l : list share) (r : nat) : list nat :=
  nodup Nat.eq_dec (map expert (filter (fun s => (gpu s =? r)%nat && negb (has holds r (expert s))) l)).

Definition proper (R E : nat) (k : Spare.slots) (s : share) : bool :=
  (gpu s <? R)%nat && (expert s <? E)%nat && (Spare.holds k (gpu s) (expert s) || Spare.may k (gpu s) (expert s)).

(** tokens of the experts from [i] on *)
Fixpoint all_put (t : tree) (i : N) (counts : list N) : bool :=
  match counts with [] => true | v :: counts => (entry t i =? v) && all_put t (i + 1) counts end.

Definition check_shares (counts holds spare : list N) (node : option (list N)) (l : list share) (p : N) (q : positive) : bool :=
  let R := length holds in
  let E := length counts in
  let put := gathered (fun s => N.of_nat (expert s)) tokens l (zeros (depth_of (N.of_nat E))) in
  forallb (proper R E (slots_of holds spare (reach holds node))) l
  && forallb (fun r => N.of_nat (length (copies_on holds l r)) <=? nth r spare 0) (seq 0 R)
  && all_put put 0 counts
  && forallb (fun r => Npos q * tokens_where (fun s => (gpu s =? r)%nat) l <=? p) (seq 0 R)
  && existsb (fun r => Npos q * tokens_where (fun s => (gpu s =? r)%nat) l =? p) (seq 0 R).

Lemma dealt_cons s l r e : dealt (s :: l) r e = ((if on r e s then N.to_nat (tokens s) else 0) + dealt l r e)%nat.
Proof. unfold dealt. cbn [tokens_where]. destruct (on r e s); lia. Qed.

Lemma over_gpus R l e : (forall s, In s l -> (gpu s < R)%nat) ->
  sum R (fun r => dealt l r e) = N.to_nat (tokens_where (fun s => (expert s =? e)%nat) l).
Proof.
  induction l as [|s l IH]; intros B; [now apply sum_0|]. cbn [tokens_where].
  rewrite (sum_ext R _ (fun r => (if (r =? gpu s)%nat then if (expert s =? e)%nat then N.to_nat (tokens s) else 0 else 0) + dealt l r e)%nat).
  - rewrite sum_add, (sum_pick R (gpu s) (fun _ => if (expert s =? e)%nat then N.to_nat (tokens s) else 0%nat)) by (apply B; now left).
    rewrite IH by (intros; apply B; now right). destruct (expert s =? e)%nat; lia.
  - intros r _. rewrite dealt_cons. unfold on. rewrite (Nat.eqb_sym r). now destruct (gpu s =? r)%nat.
Qed.

Lemma over_experts E l r : (forall s, In s l -> (expert s < E)%nat) ->
  sum E (dealt l r) = N.to_nat (tokens_where (fun s => (gpu s =? r)%nat) l).
Proof.
  induction l as [|s l IH]; intros B; [now apply sum_0|]. cbn [tokens_where].
  rewrite (sum_ext E _ (fun e => (if (e =? expert s)%nat then if (gpu s =? r)%nat then N.to_nat (tokens s) else 0 else 0) + dealt l r e)%nat).
  - rewrite sum_add, (sum_pick E (expert s) (fun _ => if (gpu s =? r)%nat then N.to_nat (tokens s) else 0%nat)) by (apply B; now left).
    rewrite IH by (intros; apply B; now right). destruct (gpu s =? r)%nat; lia.
  - intros e _. rewrite dealt_cons. unfold on. rewrite (Nat.eqb_sym e). now destruct (gpu s =? r)%nat, (expert s =? e)%nat.
Qed.

Lemma count_listed E P l : (forall e, (e < E)%nat -> P e = true -> In e l) -> (count E P <= length l)%nat.
Proof.
  intros H. unfold count. rewrite <- (Nat.mul_1_r (length l)).
  apply Nat.le_trans with (sum E (fun e => if existsb (Nat.eqb e) l then 1 else 0)%nat).
  - apply sum_le. intros e He. destruct (P e) eqn:Pe; [|lia]. replace (existsb (Nat.eqb e) l) with true; [lia|].
    symmetry. apply existsb_exists. exists e. split; [now apply H|apply Nat.eqb_refl].
  - clear H. induction l as [|a l IH]; [rewrite sum_0; [lia|reflexivity]|].
    apply Nat.le_trans with (sum E (fun e => (if (e =? a)%nat then 1 else 0) + if existsb (Nat.eqb e) l then 1 else 0)%nat).
    + apply sum_le. intros e _. cbn [existsb]. destruct (e =? a)%nat, (existsb (Nat.eqb e) l); cbn; lia.
    + rewrite sum_add, sum_ind. cbn [length]. destruct (a <? E)%nat; lia.
Qed.

Lemma all_put_spec t : forall counts i, all_put t i counts = true -> forall e, (e < length counts)%nat ->
  entry t (i + N.of_nat e) = nth e counts 0.
Proof.
  induction counts as [|v counts IH]; intros i H e He; cbn [length] in He; [lia|]. cbn [all_put] in H. apply andb_prop in H.
  destruct H as [A B]. destruct e as [|e]; [rewrite N.add_0_r; now apply N.eqb_eq|].
  cbn [nth]. rewrite <- (IH (i + 1) B e) by lia. f_equal. lia.
Qed.

Lemma tokens_where_total P l : tokens_where P l = Jobs.total (map tokens (filter P l)).
Proof. induction l as [|s l IH]; [reflexivity|]. cbn [tokens_where filter]. destruct (P s); cbn [map]; rewrite ?Jobs.total_cons; lia. Qed.

Theorem T15_shares : forall counts holds spare node l p q, check_shares counts holds spare node l p q = true ->
  split_takes counts holds spare node l (Z.of_N p # q).
Proof.
  unfold check_shares. cbn zeta. intros counts holds spare node l p q H.
  apply andb_prop in H. destruct H as [H One]. apply andb_prop in H. destruct H as [H Most].
  apply andb_prop in H. destruct H as [H Put]. apply andb_prop in H. destruct H as [May Slots].
  rewrite forallb_forall in May, Slots, Most. apply existsb_exists in One. destruct One as (r0 & Hr0 & One).
  assert (Seq : forall n i, (i < n)%nat -> In i (seq 0 n)) by (intros; apply in_seq; lia).
  assert (A : forall s, In s l -> (gpu s < length holds)%nat /\ (expert s < length counts)%nat /\
    (has holds (gpu s) (expert s) || Spare.may (slots_of holds spare (reach holds node)) (gpu s) (expert s)) = true).
  { intros s I. specialize (May s I). unfold proper in May. apply andb_prop in May. destruct May as [G O].
    apply andb_prop in G. destruct G as [G G']. split; [now apply Nat.ltb_lt|]. split; [now apply Nat.ltb_lt|exact O]. }
  split; [repeat split|].
  - intros r e Hr He Y. unfold copied in Y. apply andb_prop in Y. destruct Y as [N Y].
    apply existsb_exists in Y. destruct Y as (s & I & O). unfold on in O. apply andb_prop in O. destruct O as [O O'].
    apply Nat.eqb_eq in O, O'. subst. destruct (A s I) as (_ & _ & B). apply negb_true_iff in N. rewrite N in B. exact B.
  - intros r Hr. apply Nat.le_trans with (length (copies_on holds l r)).
    + apply count_listed. intros e He Y. unfold copied in Y. apply andb_prop in Y. destruct Y as [N Y].
      apply existsb_exists in Y. destruct Y as (s & I & O). unfold on in O. apply andb_prop in O. destruct O as [O O'].
      apply Nat.eqb_eq in O'. subst e. apply nodup_In, in_map, filter_In. split; [exact I|]. now rewrite O, N.
    + specialize (Slots r (Seq _ _ Hr)). apply N.leb_le in Slots. cbn [Spare.spare slots_of]. lia.
  - intros r e Hr He X. cbn [Spare.holds slots_of]. unfold copied. destruct (has holds r e); [reflexivity|]. cbn [negb andb orb].
    destruct (existsb (on r e) l) eqn:Ex; [reflexivity|]. exfalso. clear - X Ex. induction l as [|s l IH]; [cbn in X; lia|].
    cbn [existsb] in Ex. apply orb_false_iff in Ex. destruct Ex as [O Ex]. rewrite dealt_cons, O in X. now apply IH.
  - intros e He. rewrite over_gpus by apply A. unfold tokens_for. rewrite <- (all_put_spec _ _ _ Put e He), N.add_0_l.
    pose proof (depth_enough (N.of_nat (length counts))) as D.
    rewrite (entry_gathered _ _ (depth_of (N.of_nat (length counts)))); [|apply zeros_depth|lia|].
    + rewrite entry_zeros, N.add_0_l, tokens_where_total. do 3 f_equal. apply filter_ext. intros s.
      destruct (Nat.eqb_spec (expert s) e), (N.eqb_spec (N.of_nat (expert s)) (N.of_nat e)); auto; lia.
    + intros s I. destruct (A s I) as (_ & B & _). lia.
  - assert (Hr : (r0 < length holds)%nat) by (apply in_seq in Hr0; lia). apply N.eqb_eq in One.
    assert (L : forall r, sum (length counts) (dealt l r) = N.to_nat (tokens_where (fun s => (gpu s =? r)%nat) l)).
    { intros r. apply over_experts. intros s I. now apply A. }
    exists (N.to_nat (tokens_where (fun s => (gpu s =? r0)%nat) l)). split; [|split; [|now exists r0]].
    + unfold Qeq. cbn [Qnum Qden inject_Z]. rewrite N_nat_Z, <- One, N2Z.inj_mul. cbn [Z.of_N]. lia.
    + intros r Hr'. rewrite L. specialize (Most r (Seq _ _ Hr')). apply N.leb_le in Most. nia.
Qed.
