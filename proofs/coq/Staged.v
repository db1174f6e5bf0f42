(** * Staged schedules: one peer a server and stage, every byte in one stage

    A transfer takes bytes from one server to another; a stage lasts as long as its largest. *)
From Coq Require Import Arith NArith QArith Lia List Bool Permutation.
From Rails Require Import QSums Jobs Counting Certificate Fluid Loads.
Import ListNotations.
Open Scope N_scope.

Record transfer := Transfer { giver : nat; taker : nat; given : N }.

Definition stage_length (st : list transfer) : N := fold_right N.max 0 (map given st).
Definition total_length (stages : list (list transfer)) : N := total (map stage_length stages).

(** no server gives twice, none takes twice *)
Definition one_peer (n : nat) (st : list transfer) : Prop :=
  NoDup (map giver st) /\ NoDup (map taker st) /\
  Forall (fun x => (giver x < n)%nat /\ (taker x < n)%nat /\ giver x <> taker x /\ 0 < given x) st.

Definition between (i j : nat) (x : transfer) : bool := (giver x =? i)%nat && (taker x =? j)%nat.
Definition carried_from_to (stages : list (list transfer)) (i j : nat) : N :=
  total (map given (filter (between i j) (concat stages))).

(** the stages carry all of the demand, and nothing else *)
Definition carry (n : nat) (demand : list (list N)) (stages : list (list transfer)) : Prop :=
  Forall (one_peer n) stages /\
  forall i j, (i < n)%nat -> (j < n)%nat -> carried_from_to stages i j = rate demand i j.

Definition row_sum (n : nat) (demand : list (list N)) (i : nat) : N := nsum n (fun j => rate demand i j).
Definition column_sum (n : nat) (demand : list (list N)) (j : nat) : N := nsum n (fun i => rate demand i j).

(** ** A line bounds every schedule *)

Lemma length_ge st x : In x st -> given x <= stage_length st.
Proof.
  unfold stage_length. induction st as [|y st IH]; [easy|]. simpl. intros [->|H]; [lia|]. specialize (IH H). lia.
Qed.

Lemma one_of_stage (key : transfer -> nat) k st : NoDup (map key st) ->
  total (map given (filter (fun x => (key x =? k)%nat) st)) <= stage_length st.
Proof.
  induction st as [|x st IH]; intros D; [reflexivity|]. cbn [map] in D. inversion_clear D as [|? ? Hx D'].
  cbn [filter]. destruct (Nat.eqb_spec (key x) k) as [E|E].
  - assert (Z : filter (fun x => (key x =? k)%nat) st = []).
    { clear - Hx E. induction st as [|y st IH]; [reflexivity|]. cbn [filter]. destruct (Nat.eqb_spec (key y) k) as [E'|E'].
      - exfalso. apply Hx. left. congruence.
      - apply IH. intros I. apply Hx. now right. }
    rewrite Z. cbn [map]. rewrite total_cons. change (total []) with 0. rewrite N.add_0_r. apply length_ge. now left.
  - etransitivity; [now apply IH|]. unfold stage_length. cbn [map fold_right]. lia.
Qed.

Lemma all_stages (key : transfer -> nat) k stages : Forall (fun st => NoDup (map key st)) stages ->
  total (map given (filter (fun x => (key x =? k)%nat) (concat stages))) <= total_length stages.
Proof.
  unfold total_length. induction 1 as [|st stages D F IH]; [reflexivity|]. cbn [concat map]. rewrite total_cons.
  rewrite filter_app, map_app, total_app. pose proof (one_of_stage key k st D). lia.
Qed.

Lemma sum_over_others (P : transfer -> bool) (other : transfer -> nat) n l : Forall (fun x => (other x < n)%nat) l ->
  nsum n (fun j => total (map given (filter (fun x => P x && (other x =? j)%nat) l))) = total (map given (filter P l)).
Proof.
  induction 1 as [|x l Hx Hl IH].
  - cbn. induction n as [|n IHn]; [reflexivity|]. rewrite nsum_S, IHn. reflexivity.
  - rewrite (nsum_ext n _ (fun j => (if (other x =? j)%nat then (if P x then given x else 0) else 0)
      + total (map given (filter (fun x => P x && (other x =? j)%nat) l)))).
    + rewrite nsum_add, IH, nsum_one. apply Nat.ltb_lt in Hx. rewrite Hx. cbn [filter]. destruct (P x); cbn [map]; rewrite ?total_cons; lia.
    + intros j _. cbn [filter]. destruct (P x), (other x =? j)%nat; cbn [andb map]; rewrite ?total_cons; lia.
Qed.

Lemma Forall_concat_intro (P : transfer -> Prop) stages : Forall (fun st => Forall P st) stages -> Forall P (concat stages).
Proof. induction 1; cbn [concat]; [constructor|]. apply Forall_app. now split. Qed.

Theorem T13_line : forall n demand stages, carry n demand stages -> forall k, (k < n)%nat ->
  row_sum n demand k <= total_length stages /\ column_sum n demand k <= total_length stages.
Proof.
  intros n demand stages [V C] k Hk.
  assert (B : Forall (fun x => (giver x < n)%nat /\ (taker x < n)%nat) (concat stages)).
  { apply Forall_concat_intro. eapply Forall_impl; [|exact V]. intros st (_ & _ & F). eapply Forall_impl; [|exact F]. intros x (? & ? & _). auto. }
  split.
  - etransitivity; [|apply (all_stages giver k); eapply Forall_impl; [|exact V]; now intros st (D & _)].
    rewrite <- (sum_over_others _ taker n) by (eapply Forall_impl; [|exact B]; now intros x []).
    unfold row_sum. apply N.eq_le_incl, nsum_ext. intros j Hj. symmetry. now apply C.
  - etransitivity; [|apply (all_stages taker k); eapply Forall_impl; [|exact V]; now intros st (_ & D & _)].
    rewrite <- (sum_over_others _ giver n) by (eapply Forall_impl; [|exact B]; now intros x []).
    unfold column_sum. apply N.eq_le_incl, nsum_ext. intros j Hj. symmetry. rewrite <- (C j k Hj Hk). unfold carried_from_to.
    f_equal. f_equal. apply filter_ext. intros x. unfold between. apply andb_comm.
Qed.

(** ** The check *)

(** [given] and taken servers so far are bits of numbers *)
Fixpoint stage_ok (n : nat) (st : list transfer) (givers takers : N) : bool :=
  match st with
  | [] => true
  | x :: st =>
      let g := N.of_nat (giver x) in
      let t := N.of_nat (taker x) in
      (giver x <? n)%nat && (taker x <? n)%nat && negb (giver x =? taker x)%nat && (0 <? given x)
      && negb (N.testbit givers g) && negb (N.testbit takers t)
      && stage_ok n st (N.setbit givers g) (N.setbit takers t)
  end.

Lemma stage_ok_spec n st : forall givers takers, stage_ok n st givers takers = true ->
  one_peer n st /\ forall x, In x st -> N.testbit givers (N.of_nat (giver x)) = false /\ N.testbit takers (N.of_nat (taker x)) = false.
Proof.
  induction st as [|x st IH]; intros givers takers H.
  - split; [|easy]. repeat split; constructor.
  - cbn [stage_ok] in H. cbn zeta in H. apply andb_prop in H. destruct H as [H R]. apply andb_prop in H. destruct H as [H T].
    apply andb_prop in H. destruct H as [H G]. apply andb_prop in H. destruct H as [H W]. apply andb_prop in H. destruct H as [H S].
    apply andb_prop in H. destruct H as [A B]. apply Nat.ltb_lt in A, B. apply N.ltb_lt in W. apply negb_true_iff in S, T, G.
    apply Nat.eqb_neq in S. destruct (IH _ _ R) as [(Dg & Dt & F) O]. split.
    + repeat split.
      * cbn [map]. constructor; [|exact Dg]. intros I. apply in_map_iff in I. destruct I as (y & E & I).
        destruct (O y I) as [Y _]. rewrite E, N.setbit_eq in Y. discriminate.
      * cbn [map]. constructor; [|exact Dt]. intros I. apply in_map_iff in I. destruct I as (y & E & I).
        destruct (O y I) as [_ Y]. rewrite E, N.setbit_eq in Y. discriminate.
      * constructor; auto.
    + intros y [<-|I]; [now split|]. destruct (O y I) as [Y Z]. rewrite N.setbit_eqb in Y. rewrite N.setbit_eqb in Z.
      apply orb_false_iff in Y, Z. split; [apply Y|apply Z].
Qed.

Definition gathered_stages (n : nat) (stages : list (list transfer)) : tree :=
  fold_left (fun t st => gathered (fun x => nic n (giver x) (taker x)) given st t) stages
    (zeros (depth_of (N.of_nat n * N.of_nat n))).

Lemma gathered_concat {A} (f w : A -> N) ls : forall t, fold_left (fun t l => gathered f w l t) ls t = gathered f w (concat ls) t.
Proof.
  induction ls as [|l ls IH]; intros t; [reflexivity|]. cbn [fold_left concat]. rewrite IH. unfold gathered. now rewrite fold_left_app.
Qed.

Lemma entry_stages n stages i j : (i < n)%nat -> (j < n)%nat -> Forall (one_peer n) stages ->
  entry (gathered_stages n stages) (nic n i j) = carried_from_to stages i j.
Proof.
  intros Hi Hj V. unfold gathered_stages. rewrite gathered_concat.
  pose proof (depth_enough (N.of_nat n * N.of_nat n)) as D. set (d := depth_of _) in *.
  assert (B : Forall (fun x => (giver x < n)%nat /\ (taker x < n)%nat) (concat stages)).
  { apply Forall_concat_intro. eapply Forall_impl; [|exact V]. intros st (_ & _ & F). eapply Forall_impl; [|exact F]. intros x (? & ? & _). auto. }
  rewrite Forall_forall in B. rewrite (entry_gathered _ _ d); [|apply zeros_depth| |].
  - rewrite entry_zeros, N.add_0_l. unfold carried_from_to. f_equal. f_equal. apply filter_ext_in. intros x I. destruct (B x I) as [Hg Ht].
    unfold between. destruct (N.eqb_spec (nic n (giver x) (taker x)) (nic n i j)) as [E|E].
    + apply nic_inj in E; auto. destruct E as [-> ->]. now rewrite !Nat.eqb_refl.
    + symmetry. apply andb_false_iff. destruct (Nat.eqb_spec (giver x) i) as [E1|]; [right|now left].
      apply Nat.eqb_neq. intros E2. apply E. now rewrite E1, E2.
  - pose proof (nic_below n n i j Hi Hj). lia.
  - intros x I. destruct (B x I). pose proof (nic_below n n (giver x) (taker x)). lia.
Qed.

Definition check_stages (n : nat) (demand : list (list N)) (stages : list (list transfer)) (p : N) (q : positive) : bool :=
  let t := gathered_stages n stages in
  forallb (fun st => stage_ok n st 0 0) stages
  && every n n (fun i j => entry t (nic n i j) =? rate demand i j) && (Npos q * total_length stages =? p).

Theorem T13_stages : forall n demand stages p q, check_stages n demand stages p q = true ->
  carry n demand stages /\ (inject_Z (Z.of_N (total_length stages)) == Z.of_N p # q)%Q.
Proof.
  unfold check_stages. cbn zeta. intros n demand stages p q H. apply andb_prop in H. destruct H as [H L].
  apply andb_prop in H. destruct H as [V E]. rewrite forallb_forall in V.
  assert (F : Forall (one_peer n) stages) by (apply Forall_forall; intros st I; now apply (stage_ok_spec n st 0 0), V).
  split; [split; [exact F|]|].
  - intros i j Hi Hj. pose proof (every_spec _ _ _ E i j Hi Hj) as X. cbn beta in X. apply N.eqb_eq in X. now rewrite entry_stages in X.
  - apply N.eqb_eq in L. unfold Qeq, inject_Z. cbn [Qnum Qden]. apply (f_equal Z.of_N) in L. rewrite N2Z.inj_mul in L. cbn [Z.of_N] in L. lia.
Qed.

(** no schedule of these bytes is shorter than [b] *)
Definition stages_bounded (n : nat) (demand : list (list N)) (b : Q) : Prop :=
  forall stages, carry n demand stages -> (b <= inject_Z (Z.of_N (total_length stages)))%Q.

Definition check_line (n : nat) (demand : list (list N)) (s : side) (k : nat) (p : N) (q : positive) : bool :=
  (k <? n)%nat && (p <=? Npos q * match s with Send => row_sum n demand k | Receive => column_sum n demand k end).

Theorem T13_bound : forall n demand s k p q, check_line n demand s k p q = true -> stages_bounded n demand (Z.of_N p # q).
Proof.
  unfold check_line. intros n demand s k p q H stages C. apply andb_prop in H. destruct H as [Hk H].
  apply Nat.ltb_lt in Hk. apply N.leb_le in H. destruct (T13_line n demand stages C k Hk) as [A B].
  assert (L : p <= Npos q * total_length stages) by (destruct s; nia).
  unfold Qle, inject_Z. cbn [Qnum Qden]. apply N2Z.inj_le in L. rewrite N2Z.inj_mul in L. cbn [Z.of_N] in L. lia.
Qed.
