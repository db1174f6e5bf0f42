(** * Loads in one pass: what every NIC carries, gathered in a tree while the chunks go by

    [check_plan] of [Certificate] looks at all chunks once for every NIC.  Here they are looked at
    once: a tree of depth [d] holds a number for each of the indices below 2^d. *)
From Coq Require Import Arith NArith QArith Lia List Bool Permutation.
From Rails Require Import Jobs Certificate.
Import ListNotations.
Open Scope N_scope.

Inductive tree := Leaf (v : N) | Node (l r : tree).

Fixpoint zeros (d : nat) : tree := match d with O => Leaf 0 | S d => let t := zeros d in Node t t end.
Fixpoint entry (t : tree) (i : N) : N :=
  match t with
  | Leaf v => v
  | Node l r => if N.odd i then entry r (N.div2 i) else entry l (N.div2 i)
  end.
Fixpoint add (t : tree) (i v : N) : tree :=
  match t with
  | Leaf w => Leaf (w + v)
  | Node l r => if N.odd i then Node l (add r (N.div2 i) v) else Node (add l (N.div2 i) v) r
  end.

(** every path of the tree has length [d] *)
Fixpoint even_depth (d : nat) (t : tree) : Prop :=
  match d, t with
  | O, Leaf _ => True
  | S d, Node l r => even_depth d l /\ even_depth d r
  | _, _ => False
  end.

(** enough depth for [n] indices *)
Definition depth_of (n : N) : nat := N.to_nat (N.log2_up n).

Lemma depth_enough n : n <= 2 ^ N.of_nat (depth_of n).
Proof.
  unfold depth_of. rewrite N2Nat.id. destruct (N.le_gt_cases n 1) as [H|H].
  - transitivity 1; [exact H|]. apply N.lt_pred_le. apply N.neq_0_lt_0, N.pow_nonzero. lia.
  - apply N.log2_up_spec in H. apply H.
Qed.

Lemma zeros_depth d : even_depth d (zeros d).
Proof. induction d as [|d IH]; simpl; auto. Qed.

Lemma entry_zeros d : forall i, entry (zeros d) i = 0.
Proof. induction d as [|d IH]; intros i; simpl; [reflexivity|]. destruct (N.odd i); apply IH. Qed.

Lemma add_depth d : forall t i v, even_depth d t -> even_depth d (add t i v).
Proof.
  induction d as [|d IH]; intros [w|l r] i v H; simpl in *; auto; try easy.
  destruct H as [A B]. destruct (N.odd i); simpl; auto.
Qed.

Lemma half_below d i : i < 2 ^ N.of_nat (S d) -> N.div2 i < 2 ^ N.of_nat d.
Proof.
  intros H. rewrite Nat2N.inj_succ, N.pow_succ_r' in H. rewrite (N.div2_odd i) in H. lia.
Qed.

Lemma entry_add d : forall t i j v, even_depth d t -> i < 2 ^ N.of_nat d -> j < 2 ^ N.of_nat d ->
  entry (add t i v) j = entry t j + if i =? j then v else 0.
Proof.
  induction d as [|d IH]; intros [w|l r] i j v H Hi Hj; simpl in H; try easy.
  - simpl in Hi, Hj. assert (i = 0) by lia. assert (j = 0) by lia. subst. reflexivity.
  - destruct H as [A B]. pose proof (N.div2_odd i) as Ei. pose proof (N.div2_odd j) as Ej.
    apply half_below in Hi, Hj. simpl.
    assert (E : (i =? j) = Bool.eqb (N.odd i) (N.odd j) && (N.div2 i =? N.div2 j)).
    { destruct (N.eqb_spec i j) as [->|D].
      - now rewrite Bool.eqb_reflx, N.eqb_refl.
      - symmetry. apply andb_false_iff. destruct (N.eqb_spec (N.div2 i) (N.div2 j)) as [E|]; [left|now right].
        apply Bool.eqb_false_iff. intros O. apply D. rewrite Ei, Ej, E, O. reflexivity. }
    rewrite E. destruct (N.odd i) eqn:Oi, (N.odd j) eqn:Oj; cbn [entry]; rewrite Oj; cbn [Bool.eqb andb];
      rewrite ?N.add_0_r; try reflexivity; now apply IH.
Qed.

(** ** One pass over a list *)

Definition gathered {A} (at_ weight : A -> N) (l : list A) (t : tree) : tree :=
  fold_left (fun t x => add t (at_ x) (weight x)) l t.

Lemma entry_gathered {A} (at_ weight : A -> N) d j : forall l t, even_depth d t -> j < 2 ^ N.of_nat d ->
  (forall x, In x l -> at_ x < 2 ^ N.of_nat d) ->
  entry (gathered at_ weight l t) j = entry t j + total (map weight (filter (fun x => at_ x =? j) l)).
Proof.
  induction l as [|x l IH]; intros t H Hj B; [simpl; lia|].
  unfold gathered in *. simpl fold_left. rewrite IH; auto using add_depth.
  - rewrite (entry_add d) by (auto; apply B; now left). simpl filter.
    destruct (at_ x =? j); cbn [map]; rewrite ?total_cons; lia.
  - intros y Hy. apply B. now right.
Qed.

(** ** One pass over a plan: chunks and their rails side by side *)

Definition nic (R k n : nat) : N := N.of_nat k * N.of_nat R + N.of_nat n.

Fixpoint carried (key : chunk -> nat) (R : nat) (cs : list chunk) (rail : list nat) (t : tree) : tree :=
  match cs, rail with
  | c :: cs, n :: rail => carried key R cs rail (add t (nic R (key c) n) (size c))
  | _, _ => t
  end.

Lemma carried_gathered key R cs : forall rail t, carried key R cs rail t =
  gathered (fun z => nic R (key (fst z)) (snd z)) (fun z => size (fst z)) (combine cs rail) t.
Proof. induction cs as [|c cs IH]; intros [|n rail] t; try reflexivity. apply IH. Qed.

Lemma nic_inj R k n k' n' : (n < R)%nat -> (n' < R)%nat -> nic R k n = nic R k' n' -> k = k' /\ n = n'.
Proof. unfold nic. intros H H' E. assert (k = k') by nia. subst. split; lia. Qed.

Lemma nic_below M R k n : (k < M)%nat -> (n < R)%nat -> nic R k n < N.of_nat M * N.of_nat R.
Proof. unfold nic. nia. Qed.

Lemma filter_map_fst {A B} (P : A -> bool) (l : list (A * B)) :
  filter P (map fst l) = map fst (filter (fun z => P (fst z)) l).
Proof. induction l as [|z l IH]; [reflexivity|]. simpl. rewrite IH. destruct (P (fst z)); reflexivity. Qed.

Lemma filter_filter {A} (P Q : A -> bool) l : filter P (filter Q l) = filter (fun x => Q x && P x) l.
Proof.
  induction l as [|x l IH]; [reflexivity|]. simpl. destruct (Q x); simpl; [|exact IH]. rewrite IH. reflexivity.
Qed.

(** what the pass finds at a NIC is what the NIC carries *)
Lemma entry_carried key M R cs rail k n : (k < M)%nat -> (n < R)%nat ->
  (forall c, In c cs -> (key c < M)%nat) -> Forall (fun r => (r < R)%nat) rail ->
  entry (carried key R cs rail (zeros (depth_of (N.of_nat M * N.of_nat R)))) (nic R k n) = bytes key cs rail k n.
Proof.
  intros Hk Hn HM HR. rewrite carried_gathered.
  pose proof (depth_enough (N.of_nat M * N.of_nat R)) as D. set (d := depth_of _) in *.
  rewrite Forall_forall in HR.
  rewrite (entry_gathered _ _ d); [|apply zeros_depth| |].
  - rewrite entry_zeros, N.add_0_l. unfold bytes, on. rewrite filter_map_fst, map_map, filter_filter. f_equal. f_equal.
    apply filter_ext_in. intros [c r] I. cbn [fst snd]. pose proof (HR _ (in_combine_r _ _ _ _ I)) as Hr.
    destruct (N.eqb_spec (nic R (key c) r) (nic R k n)) as [E|E].
    + apply nic_inj in E; auto. destruct E as [-> ->]. now rewrite !Nat.eqb_refl.
    + symmetry. apply andb_false_iff. destruct (Nat.eqb_spec r n) as [->|]; [right|now left].
      apply Nat.eqb_neq. intros K. apply E. now rewrite K.
  - pose proof (nic_below M R k n Hk Hn). lia.
  - intros [c r] I. cbn [fst snd]. pose proof (nic_below M R (key c) r (HM _ (in_combine_l _ _ _ _ I)) (HR _ (in_combine_r _ _ _ _ I))). lia.
Qed.

(** bytes from node to node, in one pass *)
Definition demanded (M : nat) (cs : list chunk) : tree :=
  gathered (fun c => nic M (src c) (dst c)) size cs (zeros (depth_of (N.of_nat M * N.of_nat M))).

Lemma entry_demanded M cs k f : (k < M)%nat -> (f < M)%nat ->
  (forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat) ->
  entry (demanded M cs) (nic M k f) = total (map size (filter (fun c => (src c =? k)%nat && (dst c =? f)%nat) cs)).
Proof.
  intros Hk Hf HM. unfold demanded. pose proof (depth_enough (N.of_nat M * N.of_nat M)) as D. set (d := depth_of _) in *.
  rewrite (entry_gathered _ _ d); [|apply zeros_depth| |].
  - rewrite entry_zeros, N.add_0_l. f_equal. f_equal. apply filter_ext_in. intros c I. destruct (HM c I) as [Hs Hd].
    destruct (N.eqb_spec (nic M (src c) (dst c)) (nic M k f)) as [E|E].
    + apply nic_inj in E; auto. destruct E as [-> ->]. now rewrite !Nat.eqb_refl.
    + symmetry. apply andb_false_iff. destruct (Nat.eqb_spec (src c) k) as [E1|]; [right|now left].
      apply Nat.eqb_neq. intros E2. apply E. now rewrite E1, E2.
  - pose proof (nic_below M M k f Hk Hf). lia.
  - intros c I. destruct (HM c I). pose proof (nic_below M M (src c) (dst c)). lia.
Qed.

(** ** Passes that need no stack *)

Fixpoint same_length {A B} (l : list A) (m : list B) : bool :=
  match l, m with [], [] => true | _ :: l, _ :: m => same_length l m | _, _ => false end.

Lemma same_length_spec {A B} (l : list A) : forall m : list B, same_length l m = true -> length l = length m.
Proof. induction l as [|x l IH]; intros [|y m] H; try discriminate; simpl; auto. Qed.

(** what node [k] has to send or receive, the last first *)
Definition mine_reversed (key : chunk -> nat) (k : nat) (cs : list chunk) : list N :=
  fold_left (fun l c => if (key c =? k)%nat then size c :: l else l) cs [].

Lemma mine_reversed_perm key k cs : Permutation (mine_reversed key k cs) (mine key k cs).
Proof.
  assert (G : forall l, Permutation (fold_left (fun l c => if (key c =? k)%nat then size c :: l else l) cs l) (mine key k cs ++ l)).
  { unfold mine. induction cs as [|c cs IH]; intros l; [reflexivity|]. simpl fold_left. simpl filter. rewrite IH.
    destruct (key c =? k)%nat; [|reflexivity]. cbn [map app]. symmetry. apply Permutation_middle. }
  unfold mine_reversed. rewrite G, app_nil_r. reflexivity.
Qed.

(** ** A plan takes exactly so long *)

Definition every (M R : nat) (P : nat -> nat -> bool) : bool :=
  forallb (fun k => forallb (P k) (seq 0 R)) (seq 0 M).
Definition some (M R : nat) (P : nat -> nat -> bool) : bool :=
  existsb (fun k => existsb (P k) (seq 0 R)) (seq 0 M).

Lemma every_spec M R P : every M R P = true -> forall k n, (k < M)%nat -> (n < R)%nat -> P k n = true.
Proof.
  unfold every. rewrite forallb_forall. intros H k n Hk Hn. specialize (H k ltac:(apply in_seq; lia)).
  rewrite forallb_forall in H. apply H, in_seq. lia.
Qed.

Lemma some_spec M R P : some M R P = true -> exists k n, (k < M)%nat /\ (n < R)%nat /\ P k n = true.
Proof.
  unfold some. rewrite existsb_exists. intros (k & Hk & H). apply existsb_exists in H. destruct H as (n & Hn & H).
  apply in_seq in Hk, Hn. exists k, n. repeat split; auto; lia.
Qed.

(** loads of all NICs against the rates: none ends after p/q, and one ends then (or p = 0) *)
Definition none_later (M R : nat) (rates : list (list N)) (t : tree) (p : N) (q : positive) : bool :=
  every M R (fun k n => Npos q * entry t (nic R k n) <=? p * rate rates k n).
Definition one_then (M R : nat) (rates : list (list N)) (t : tree) (p : N) (q : positive) : bool :=
  some M R (fun k n => let load := entry t (nic R k n) in (0 <? load) && (Npos q * load =? p * rate rates k n)).

(** the plan is a plan, its last NIC is done at [time], and none later *)
Definition takes (M R : nat) (tx rx : list (list N)) (cs : list chunk) (rail : list nat) (time : Q) : Prop :=
  is_plan R cs rail /\ on_time M R tx rx cs rail time /\
  forall t, (0 <= t)%Q -> on_time M R tx rx cs rail t -> (time <= t)%Q.

Definition in_range (M : nat) (cs : list chunk) : bool :=
  forallb (fun c => (src c <? M)%nat && (dst c <? M)%nat && negb (src c =? dst c)%nat && (0 <? size c)) cs.

Lemma in_range_spec M cs : in_range M cs = true -> forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat.
Proof.
  unfold in_range. rewrite forallb_forall. intros H c I. specialize (H c I).
  apply andb_prop in H. destruct H as [H _]. apply andb_prop in H. destruct H as [H _].
  apply andb_prop in H. destruct H as [A B]. apply Nat.ltb_lt in A, B. auto.
Qed.

(** what all NICs send, and receive *)
Definition both (M R : nat) (cs : list chunk) (rail : list nat) : tree * tree :=
  let z := zeros (depth_of (N.of_nat M * N.of_nat R)) in (carried src R cs rail z, carried dst R cs rail z).

Definition lasts (M R : nat) (tx rx : list (list N)) (loads : tree * tree) (p : N) (q : positive) : bool :=
  none_later M R tx (fst loads) p q && none_later M R rx (snd loads) p q
  && ((p =? 0) || one_then M R tx (fst loads) p q || one_then M R rx (snd loads) p q).

Definition check_takes (M R : nat) (tx rx : list (list N)) (cs : list chunk) (rail : list nat) (p : N) (q : positive) : bool :=
  in_range M cs && same_length rail cs && forallb (fun n => (n <? R)%nat) rail && lasts M R tx rx (both M R cs rail) p q.

Lemma exactly_then q l p v t : 0 < l -> Npos q * l = p * v ->
  (inject_Z (Z.of_N l) <= t * inject_Z (Z.of_N v))%Q -> ((Z.of_N p # q) <= t)%Q.
Proof.
  intros Hl E H. assert (0 < v) by (destruct (N.eq_0_gt_0_cases v) as [->|]; [rewrite N.mul_0_r in E|]; lia).
  apply (f_equal Z.of_N) in E. rewrite !N2Z.inj_mul in E. change (Z.of_N (Npos q)) with (Z.pos q) in E.
  destruct t as [a b]. unfold Qle, Qmult, inject_Z in *. cbn [Qnum Qden] in *. rewrite Pos.mul_1_r, Z.mul_1_r in H.
  apply (Zmult_le_reg_r _ _ (Z.of_N v)); [lia|].
  replace (Z.of_N p * Z.pos b * Z.of_N v)%Z with (Z.pos q * (Z.of_N l * Z.pos b))%Z by (rewrite Z.mul_assoc, E; lia).
  replace (a * Z.pos q * Z.of_N v)%Z with (Z.pos q * (a * Z.of_N v))%Z by lia.
  apply Z.mul_le_mono_nonneg_l; [lia|exact H].
Qed.

Lemma zero_then q t : (0 <= t)%Q -> ((Z.of_N 0 # q) <= t)%Q.
Proof. intros H. unfold Qle in *. simpl in *. lia. Qed.

Theorem T7_takes : forall M R tx rx cs rail p q, check_takes M R tx rx cs rail p q = true ->
  takes M R tx rx cs rail (Z.of_N p # q).
Proof.
  unfold check_takes, lasts, both. cbn [fst snd]. intros M R tx rx cs rail p q H.
  apply andb_prop in H. destruct H as [H T]. apply andb_prop in H. destruct H as [H HR].
  apply andb_prop in H. destruct H as [HM HL].
  apply andb_prop in T. destruct T as [T One]. apply andb_prop in T. destruct T as [Ts Tr].
  assert (F : Forall (fun r => (r < R)%nat) rail).
  { rewrite forallb_forall in HR. apply Forall_forall. intros r Hr. now apply Nat.ltb_lt, HR. }
  pose proof (in_range_spec M cs HM) as B.
  assert (S : forall k n, (k < M)%nat -> (n < R)%nat -> entry (carried src R cs rail (zeros (depth_of (N.of_nat M * N.of_nat R)))) (nic R k n)
    = bytes src cs rail k n) by (intros; apply entry_carried; auto; intros c I; now apply B).
  assert (D : forall k n, (k < M)%nat -> (n < R)%nat -> entry (carried dst R cs rail (zeros (depth_of (N.of_nat M * N.of_nat R)))) (nic R k n)
    = bytes dst cs rail k n) by (intros; apply entry_carried; auto; intros c I; now apply B).
  split; [|split].
  - split; [now apply same_length_spec|exact F].
  - intros k n Hk Hn. split.
    + pose proof (every_spec _ _ _ Ts k n Hk Hn) as E. cbn beta in E. apply N.leb_le in E. rewrite S in E by assumption. now apply scaled_le.
    + pose proof (every_spec _ _ _ Tr k n Hk Hn) as E. cbn beta in E. apply N.leb_le in E. rewrite D in E by assumption. now apply scaled_le.
  - intros t Ht On. apply orb_prop in One. destruct One as [One|One]; [apply orb_prop in One; destruct One as [One|One]|].
    + apply N.eqb_eq in One. subst p. now apply zero_then.
    + destruct (some_spec _ _ _ One) as (k & n & Hk & Hn & E). cbn beta zeta in E. rewrite S in E by assumption.
      apply andb_prop in E. destruct E as [E1 E2]. apply N.ltb_lt in E1. apply N.eqb_eq in E2.
      eapply exactly_then; eauto. apply (On k n Hk Hn).
    + destruct (some_spec _ _ _ One) as (k & n & Hk & Hn & E). cbn beta zeta in E. rewrite D in E by assumption.
      apply andb_prop in E. destruct E as [E1 E2]. apply N.ltb_lt in E1. apply N.eqb_eq in E2.
      eapply exactly_then; eauto. apply (On k n Hk Hn).
Qed.
