(** * Schedules of indivisible jobs, and lower bounds for all of them (T7)

    One sender's chunks on its rails: the machine-scheduling problem P||Cmax.
    A schedule is the list of (job size, machine) pairs in the order of placement. *)
From Coq Require Import Arith Lia List Bool Sorted.
From Rails Require Import Sums.
Import ListNotations.

(** ** Definitions *)
Definition sched := list (nat * nat).
Definition jobs_on (s : sched) (i : nat) : list nat :=
  map fst (filter (fun pm => snd pm =? i) s).
Definition load (s : sched) (i : nat) : nat := list_sum (jobs_on s i).
Definition sizes (s : sched) : list nat := map fst s.
(** [s] places the jobs [ps] on machines 0..N-1 *)
Definition schedules (N : nat) (ps : list nat) (s : sched) : Prop :=
  sizes s = ps /\ Forall (fun pm => snd pm < N) s.
Definition cmax (N : nat) (s : sched) : nat := list_max (map (load s) (seq 0 N)).
(** largest first *)
Definition nonincreasing (ps : list nat) : Prop := StronglySorted ge ps.

(** ** Facts used throughout *)
Lemma cmax_le N s C : cmax N s <= C <-> forall i, i < N -> load s i <= C.
Proof.
  unfold cmax. rewrite list_max_le, Forall_map, Forall_forall. split; intros H i Hi.
  - apply H. apply in_seq. lia.
  - apply H. apply in_seq in Hi. lia.
Qed.

Lemma load_cmax N s i : i < N -> load s i <= cmax N s.
Proof. intros Hi. exact (proj1 (cmax_le N s _) (le_n _) i Hi). Qed.

Lemma jobs_on_app s t i : jobs_on (s ++ t) i = jobs_on s i ++ jobs_on t i.
Proof. unfold jobs_on. now rewrite filter_app, map_app. Qed.

Lemma load_app s t i : load (s ++ t) i = load s i + load t i.
Proof. unfold load. now rewrite jobs_on_app, list_sum_app. Qed.

Lemma jobs_on_In s i p : In p (jobs_on s i) -> In p (sizes s).
Proof.
  unfold jobs_on, sizes. rewrite !in_map_iff. intros [x [E H]].
  apply filter_In in H. exists x. tauto.
Qed.

(** double counting: any weight summed per machine = summed over all jobs *)
Lemma weight_total (w : nat -> nat) N s :
  Forall (fun pm => snd pm < N) s ->
  sum N (fun i => list_sum (map w (jobs_on s i))) = list_sum (map w (sizes s)).
Proof.
  induction s as [|[p m] s IH]; intros H.
  - unfold jobs_on; simpl. now apply sum_0.
  - inversion_clear H as [|? ? Hm Hs]. simpl in Hm. specialize (IH Hs). simpl. rewrite <- IH.
    rewrite (sum_ext N _ (fun i => w p * (if i =? m then 1 else 0)
                                   + list_sum (map w (jobs_on s i)))).
    + rewrite sum_add, <- sum_mul, sum_ind. apply Nat.ltb_lt in Hm. rewrite Hm. lia.
    + intros i _. unfold jobs_on. simpl. rewrite (Nat.eqb_sym m i).
      destruct (i =? m); simpl; lia.
Qed.

Lemma load_total N s :
  Forall (fun pm => snd pm < N) s -> sum N (load s) = list_sum (sizes s).
Proof.
  intros H. pose proof (weight_total (fun p => p) N s H) as E.
  rewrite map_id in E. rewrite <- E. apply sum_ext. intros. unfold load. now rewrite map_id.
Qed.

Lemma split_prefix N ps qs t :
  schedules N (ps ++ qs) t ->
  exists t1 t2, t = t1 ++ t2 /\ schedules N ps t1 /\ schedules N qs t2.
Proof.
  intros [E F]. exists (firstn (length ps) t), (skipn (length ps) t).
  rewrite <- (firstn_skipn (length ps) t) in F. apply Forall_app in F. destruct F as [F1 F2].
  split; [now rewrite firstn_skipn|]. unfold schedules, sizes in *.
  split; split; auto.
  - rewrite <- firstn_map, E, firstn_app, Nat.sub_diag, firstn_all. now rewrite app_nil_r.
  - rewrite <- skipn_map, E, skipn_app, Nat.sub_diag, skipn_all. reflexivity.
Qed.

(** the last job placed on machine i *)
Lemma last_job s i :
  load s i = 0 \/
  exists s1 p s2, s = s1 ++ (p, i) :: s2 /\ load s i = load s1 i + p.
Proof.
  induction s as [|[p m] s IH] using rev_ind; [left; reflexivity|].
  assert (L : load (s ++ [(p, m)]) i = load s i + (if m =? i then p else 0)).
  { rewrite load_app. unfold load at 2, jobs_on. simpl. destruct (m =? i); simpl; lia. }
  destruct (Nat.eqb_spec m i) as [->|Hne].
  - right. exists s, p, []. split; auto.
  - rewrite Nat.add_0_r in L. destruct IH as [H|(s1 & q & s2 & -> & H)].
    + left. lia.
    + right. exists s1, q, (s2 ++ [(p, m)]). split; [|lia].
      rewrite <- app_assoc. reflexivity.
Qed.

Lemma sorted_prefix_ge ps p qs :
  nonincreasing (ps ++ p :: qs) -> Forall (fun q => p <= q) ps.
Proof.
  induction ps as [|a ps IH]; intros H; constructor.
  - inversion_clear H as [|? ? _ Ha]. rewrite Forall_forall in Ha.
    apply Ha. apply in_or_app. right. now left.
  - apply IH. now inversion_clear H.
Qed.

(** ** T7: lower bounds *)
Theorem T7_average : forall N ps t, schedules N ps t -> list_sum ps <= N * cmax N t.
Proof.
  intros N ps t [E F]. rewrite <- E, <- (load_total N t F).
  apply sum_le_const. intros. now apply load_cmax.
Qed.

Theorem T7_max : forall N ps t p, schedules N ps t -> In p ps -> p <= cmax N t.
Proof.
  intros N ps t p [E F] Hin. rewrite <- E in Hin. unfold sizes in Hin.
  apply in_map_iff in Hin. destruct Hin as [[q m] [Eq Hin]]. simpl in Eq; subst q.
  rewrite Forall_forall in F. pose proof (F _ Hin) as Hm. simpl in Hm.
  apply Nat.le_trans with (load t m); [|now apply load_cmax].
  apply in_split in Hin. destruct Hin as (l1 & l2 & ->).
  rewrite load_app. unfold load at 2, jobs_on. simpl. rewrite Nat.eqb_refl. simpl. lia.
Qed.

Lemma sum_ge_length a l : Forall (fun q => a <= q) l -> length l * a <= list_sum l.
Proof. induction 1; simpl; lia. Qed.

Theorem T7_pair : forall N ps t,
  1 <= N -> nonincreasing ps -> schedules N ps t -> N < length ps ->
  nth (N - 1) ps 0 + nth N ps 0 <= cmax N t.
Proof.
  intros N ps t HN Hs T Hl.
  (* ps = ps0 ++ [a] ++ [b] ++ rest, a = p_N, b = p_{N+1} *)
  destruct (nth_split ps 0 (n := N) Hl) as (l & rest & E & Hlen).
  set (b := nth N ps 0) in *.
  destruct (exists_last (l := l)) as (ps0 & a & El); [intros ->; simpl in Hlen; lia|]. subst l.
  rewrite app_length in Hlen. simpl in Hlen.
  assert (Ea : nth (N - 1) ps 0 = a).
  { rewrite E, <- app_assoc, app_nth2 by lia. replace (N - 1 - length ps0) with 0 by lia. reflexivity. }
  rewrite Ea. clear Ea.
  assert (Pb : Forall (fun q => b <= q) (ps0 ++ [a])).
  { rewrite E in Hs. now apply sorted_prefix_ge in Hs. }
  assert (Pa : Forall (fun q => a <= q) (ps0 ++ [a])).
  { rewrite E, <- app_assoc in Hs. simpl in Hs. apply sorted_prefix_ge in Hs.
    apply Forall_app; split; auto. }
  assert (Hba : b <= a) by (apply Forall_app in Pb; destruct Pb as [_ Pb]; now inversion Pb).
  rewrite E in T.
  change (schedules N ((ps0 ++ [a]) ++ [b] ++ rest) t) in T.
  destruct (split_prefix _ _ _ _ T) as (t1 & t' & -> & [E1 F1] & T').
  destruct (split_prefix _ _ _ _ T') as (t2 & t3 & -> & [E2 F2] & _).
  (* count the jobs of t1 ++ t2 : N + 1 of them *)
  assert (F12 : Forall (fun pm => snd pm < N) (t1 ++ t2)) by (apply Forall_app; auto).
  pose proof (weight_total (fun _ => 1) N (t1 ++ t2) F12) as W.
  assert (Ones : forall l : list nat, list_sum (map (fun _ => 1) l) = length l).
  { induction l as [|? ? IH]; simpl; auto. }
  rewrite Ones in W.
  assert (HW : N * 1 < sum N (fun i => list_sum (map (fun _ : nat => 1) (jobs_on (t1 ++ t2) i)))).
  { rewrite W. unfold sizes in *. rewrite map_app, E1, E2, !app_length. simpl. lia. }
  apply sum_pigeon in HW. destruct HW as (i & Hi & Hc). rewrite Ones in Hc.
  apply Nat.le_trans with (load (t1 ++ t2 ++ t3) i); [|now apply load_cmax].
  rewrite !load_app. rewrite jobs_on_app, app_length in Hc.
  assert (J1 : length (jobs_on t1 i) * a <= load t1 i).
  { apply sum_ge_length. apply Forall_forall. intros q Hq. apply jobs_on_In in Hq.
    rewrite E1 in Hq. rewrite Forall_forall in Pa. auto. }
  assert (J2 : length (jobs_on t2 i) * b <= load t2 i).
  { apply sum_ge_length. apply Forall_forall. intros q Hq. apply jobs_on_In in Hq.
    rewrite E2 in Hq. destruct Hq as [<-|[]]. auto. }
  assert (J3 : length (jobs_on t2 i) <= 1).
  { unfold jobs_on. rewrite map_length.
    assert (length t2 = 1) by (rewrite <- (map_length fst); unfold sizes in E2; now rewrite E2).
    destruct t2 as [|y [|]]; simpl in *; try lia. destruct (snd y =? i); simpl; lia. }
  destruct (length (jobs_on t2 i)) as [|[|]]; nia.
Qed.
