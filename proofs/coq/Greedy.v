(** * List scheduling and LPT: T5 and T6

    The greedy rule, its invariant, the additive bound of any order (T5), Graham's ratio
    for the largest-first order (T6), and the program that the rule describes. *)
From Coq Require Import Arith Lia List Bool Sorted.
From Rails Require Import Sums Schedule.
Import ListNotations.

(** ** The rule: every job went to a machine that was least loaded at its time (any ties) *)
Definition greedy (N : nat) (s : sched) : Prop :=
  forall s1 p i s2, s = s1 ++ (p, i) :: s2 -> forall j, j < N -> load s1 i <= load s1 j.

(** ** The invariant: a least loaded machine carries at most the average *)
Lemma step_bound N s1 i :
  Forall (fun pm => snd pm < N) s1 ->
  (forall j, j < N -> load s1 i <= load s1 j) ->
  N * load s1 i <= list_sum (sizes s1).
Proof. intros F H. rewrite <- (load_total N s1 F). now apply sum_ge_const. Qed.

(** ** T5: N Cmax <= total + (N-1) largest, whatever the order of the jobs *)
Theorem T5_list_scheduling : forall N ps s pmax,
  1 <= N -> schedules N ps s -> greedy N s -> Forall (fun p => p <= pmax) ps ->
  N * cmax N s <= list_sum ps + (N - 1) * pmax.
Proof.
  intros N ps s pmax HN [E F] G P.
  assert (A : forall i, i < N -> N * load s i <= list_sum ps + (N - 1) * pmax).
  { intros i Hi. destruct (last_job s i) as [->|(s1 & p & s2 & -> & ->)]; [lia|].
    rewrite <- E in *. unfold sizes in *. rewrite map_app in *. simpl in *.
    rewrite list_sum_app. simpl.
    apply Forall_app in F. destruct F as [F1 _].
    pose proof (step_bound N s1 i F1 (G s1 p i s2 eq_refl)) as B. unfold sizes in B.
    apply Forall_app in P. destruct P as [_ P]. inversion_clear P as [|? ? Hp _].
    destruct N; [lia|]. simpl Nat.sub. rewrite Nat.sub_0_r. nia. }
  destruct (Nat.eq_dec (cmax N s) 0) as [->|Hz]; [lia|].
  (* cmax is attained *)
  destruct (le_lt_dec (N * cmax N s) (list_sum ps + (N - 1) * pmax)) as [|Hc]; auto. exfalso.
  assert (cmax N s <= cmax N s - 1); [|lia].
  apply cmax_le. intros i Hi. specialize (A i Hi). nia.
Qed.

(** ** T6: LPT is within 4/3 - 1/(3N) of every schedule

    Let the last job [p] of the fullest machine decide.  If 3p <= C the additive bound is
    enough.  If 3p > C, give a job weight 2 when it can't share a machine with [p] and
    1 otherwise: no machine of a schedule of length C carries more than 2, every machine
    that [p] overfills carries at least 2, so there would be too much weight. *)
Definition w (C p q : nat) : nat := if C <? q + p then 2 else 1.

Lemma w_opt C p l :
  Forall (fun q => p <= q) l -> list_sum l <= C -> C < 3 * p -> list_sum (map (w C p) l) <= 2.
Proof.
  intros F. destruct l as [|a [|b [|c l]]]; simpl; intros H Hp;
    repeat match goal with H : Forall _ (_ :: _) |- _ => inversion_clear H end;
    unfold w; repeat match goal with |- context [?u <? ?v] => destruct (Nat.ltb_spec u v) end; lia.
Qed.

Lemma w_lpt C p l : p <= C -> C < list_sum l + p -> 2 <= list_sum (map (w C p) l).
Proof.
  destruct l as [|a [|b l]]; simpl; intros Hp H; [lia| |]; unfold w;
    repeat match goal with |- context [?u <? ?v] => destruct (Nat.ltb_spec u v) end; lia.
Qed.

(** if the jobs so far are larger than C/3, adding p to a least loaded machine keeps C *)
Lemma big_jobs N s1 p i t C :
  1 <= N -> schedules N (sizes s1 ++ [p]) t -> Forall (fun pm => snd pm < N) s1 ->
  (forall j, j < N -> load s1 i <= load s1 j) ->
  Forall (fun q => p <= q) (sizes s1) ->
  (forall j, j < N -> load t j <= C) -> C < 3 * p ->
  load s1 i + p <= C.
Proof.
  intros HN [Et Ft] F G P HC Hp.
  destruct (le_lt_dec (load s1 i + p) C) as [|Hlt]; auto. exfalso.
  (* every machine of t has weight <= 2 *)
  pose proof (weight_total (w C p) N t Ft) as Wt.
  assert (A : sum N (fun j => list_sum (map (w C p) (jobs_on t j))) <= N * 2).
  { apply sum_le_const. intros j Hj. apply w_opt; auto.
    - apply Forall_forall. intros q Hq. apply jobs_on_In in Hq. rewrite Et in Hq.
      apply in_app_or in Hq. rewrite Forall_forall in P. destruct Hq as [Hq|[<-|[]]]; auto.
    - now apply HC. }
  (* p fits on its machine of t *)
  assert (HpC : p <= C).
  { assert (Hin : In p (sizes t)) by (rewrite Et; apply in_or_app; right; now left).
    unfold sizes in Hin. apply in_map_iff in Hin. destruct Hin as [[p' m] [E Hin]].
    simpl in E; subst p'. rewrite Forall_forall in Ft. specialize (Ft _ Hin). simpl in Ft.
    specialize (HC m Ft). unfold load in HC.
    assert (Hj : In p (jobs_on t m)).
    { unfold jobs_on. apply in_map_iff. exists (p, m). split; auto.
      apply filter_In. split; auto. simpl. apply Nat.eqb_refl. }
    apply in_split in Hj. destruct Hj as (l1 & l2 & Ej).
    rewrite Ej, list_sum_app in HC. simpl in HC. lia. }
  (* every machine of the greedy schedule has weight >= 2 *)
  pose proof (weight_total (w C p) N s1 F) as Ws.
  assert (B : N * 2 <= sum N (fun j => list_sum (map (w C p) (jobs_on s1 j)))).
  { apply sum_ge_const. intros j Hj. apply w_lpt; auto.
    specialize (G j Hj). unfold load in *. lia. }
  rewrite Et, map_app, list_sum_app in Wt. simpl in Wt.
  assert (1 <= w C p p) by (unfold w; destruct (C <? p + p); lia). lia.
Qed.

Theorem T6_LPT : forall N ps s t,
  1 <= N -> nonincreasing ps -> schedules N ps s -> greedy N s -> schedules N ps t ->
  3 * N * cmax N s <= (4 * N - 1) * cmax N t.
Proof.
  intros N ps s t HN Hs [E F] G T. set (C := cmax N t).
  assert (HC : forall j, j < N -> load t j <= C) by (intros; now apply load_cmax). clearbody C.
  assert (A : forall i, i < N -> 3 * N * load s i <= (4 * N - 1) * C).
  { intros i Hi. destruct (last_job s i) as [->|(s1 & p & s2 & -> & ->)]; [rewrite Nat.mul_0_r; apply Nat.le_0_l|].
    assert (Eps : ps = (sizes s1 ++ [p]) ++ sizes s2).
    { rewrite <- E. unfold sizes. rewrite map_app, <- app_assoc. reflexivity. }
    rewrite Eps in T. destruct (split_prefix _ _ _ _ T) as (t1 & t2 & -> & T1 & _).
    assert (HC1 : forall j, j < N -> load t1 j <= C).
    { intros j Hj. specialize (HC j Hj). rewrite load_app in HC. lia. }
    apply Forall_app in F. destruct F as [F1 _].
    pose proof (G s1 p i s2 eq_refl) as Gi.
    assert (P : Forall (fun q => p <= q) (sizes s1)).
    { rewrite Eps, <- app_assoc in Hs. simpl in Hs. now apply sorted_prefix_ge in Hs. }
    destruct (le_lt_dec (3 * p) C) as [Hsmall|Hbig].
    - pose proof (step_bound N s1 i F1 Gi) as B.
      destruct T1 as [Et Ft]. pose proof (load_total N t1 Ft) as L.
      rewrite Et, list_sum_app in L. simpl in L.
      assert (sum N (load t1) <= N * C) by (now apply sum_le_const).
      assert (N * (load s1 i + p) <= N * C + (N - 1) * p) by nia.
      assert ((N - 1) * (3 * p) <= (N - 1) * C) by (now apply Nat.mul_le_mono_l). nia.
    - pose proof (big_jobs N s1 p i t1 C HN T1 F1 Gi P HC1 Hbig).
      transitivity (3 * N * C); [now apply Nat.mul_le_mono_l | apply Nat.mul_le_mono_r; lia]. }
  destruct (le_lt_dec (3 * N * cmax N s) ((4 * N - 1) * C)) as [|Hc]; auto. exfalso.
  assert (cmax N s <= cmax N s - 1).
  { apply cmax_le. intros i Hi. specialize (A i Hi). nia. }
  assert (cmax N s = 0) by lia. nia.
Qed.

(** ** T6, a posteriori: with k jobs on the fullest machine LPT is within kN/(kN-N+1)

    Those k jobs are no smaller than the last of them, so it is at most a k-th of the length. *)
Theorem T6_aposteriori : forall N ps s t i,
  1 <= N -> Forall (fun p => 1 <= p) ps -> nonincreasing ps -> schedules N ps s -> greedy N s -> schedules N ps t ->
  i < N -> load s i = cmax N s -> let k := length (jobs_on s i) in
  (k * N - (N - 1)) * cmax N s <= k * N * cmax N t.
Proof.
  intros N ps s t i HN Pos Hs [E F] G T Hi Hl k.
  pose proof (T7_average N ps t T) as Av.
  destruct (last_job s i) as [Z|(s1 & p & s2 & Es & El)].
  { rewrite <- Hl, Z. lia. }
  assert (Eps : ps = sizes s1 ++ p :: sizes s2) by (rewrite <- E, Es; unfold sizes; now rewrite map_app).
  assert (Big : Forall (fun q => p <= q) (sizes s1)) by (rewrite Eps in Hs; now apply sorted_prefix_ge in Hs).
  assert (Kp : k * p <= load s i).
  { assert (J : jobs_on s i = jobs_on s1 i ++ p :: jobs_on s2 i).
    { rewrite Es, jobs_on_app. f_equal. unfold jobs_on. simpl. now rewrite Nat.eqb_refl. }
    assert (Z : jobs_on s2 i = []).
    { unfold load in El at 1. rewrite J, list_sum_app in El. simpl in El. fold (load s1 i) in El.
      destruct (jobs_on s2 i) as [|q l] eqn:O; [reflexivity|]. exfalso.
      assert (In q ps).
      { rewrite Eps. apply in_or_app. right. right. apply (jobs_on_In s2 i). rewrite O. now left. }
      rewrite Forall_forall in Pos. specialize (Pos q H). unfold load in El. simpl in El. lia. }
    assert (A : Forall (fun q => p <= q) (jobs_on s i)).
    { rewrite J, Z. apply Forall_app. split; [|now constructor].
      apply Forall_forall. intros q Hq. rewrite Forall_forall in Big. apply Big. now apply (jobs_on_In s1 i). }
    apply sum_ge_length in A. exact A. }
  assert (F1 : Forall (fun pm => snd pm < N) s1) by (rewrite Es in F; now apply Forall_app in F).
  pose proof (step_bound N s1 i F1 (G s1 p i s2 Es)) as B.
  assert (Sum : list_sum (sizes s1) + p <= list_sum ps) by (rewrite Eps, list_sum_app; simpl; lia).
  rewrite <- Hl. set (C := load s i) in *. set (O := cmax N t) in *. clearbody k.
  assert (A1 : N * C <= N * O + (N - 1) * p) by nia.
  assert (A2 : k * (N * C) <= k * (N * O) + (N - 1) * C) by nia.
  rewrite Nat.mul_sub_distr_r. rewrite <- !Nat.mul_assoc. lia.
Qed.

(** ** The rule as a program: the first least loaded machine *)
Fixpoint argmin (g : nat -> nat) (n : nat) : nat :=
  match n with
  | 0 => 0
  | S m => let a := argmin g m in if g m <? g a then m else a
  end.

Lemma argmin_spec g n : 1 <= n -> argmin g n < n /\ forall j, j < n -> g (argmin g n) <= g j.
Proof.
  induction n as [|n IH]; intros H; [lia|]. simpl. destruct n as [|n].
  - simpl. rewrite Nat.ltb_irrefl. split; [lia|]. intros j Hj. replace j with 0 by lia. auto.
  - destruct (IH ltac:(lia)) as [A B]. set (a := argmin g (S n)) in *.
    destruct (Nat.ltb_spec (g (S n)) (g a)) as [L|L]; split; try lia; intros j Hj;
      (destruct (Nat.eq_dec j (S n)) as [->|]; [lia | specialize (B j ltac:(lia)); lia]).
Qed.

Fixpoint run (N : nat) (s : sched) (ps : list nat) : sched :=
  match ps with [] => s | p :: ps => run N (s ++ [(p, argmin (load s) N)]) ps end.
Definition list_schedule (N : nat) (ps : list nat) : sched := run N [] ps.

Lemma greedy_snoc N s p i :
  greedy N s -> (forall j, j < N -> load s i <= load s j) -> greedy N (s ++ [(p, i)]).
Proof.
  intros G A s1 q m s2 E. destruct (rev s2) as [|z r] eqn:R.
  - assert (s2 = []) as -> by (rewrite <- (rev_involutive s2), R; reflexivity).
    apply app_inj_tail in E. destruct E as [-> E]. injection E as -> ->. exact A.
  - assert (s2 = rev r ++ [z]) as -> by (rewrite <- (rev_involutive s2), R; reflexivity).
    rewrite app_comm_cons, app_assoc in E. apply app_inj_tail in E. destruct E as [E _].
    exact (G s1 q m _ E).
Qed.

Theorem list_schedule_correct : forall N ps, 1 <= N ->
  schedules N ps (list_schedule N ps) /\ greedy N (list_schedule N ps).
Proof.
  intros N ps HN. unfold list_schedule.
  assert (H : forall qs s, Forall (fun pm => snd pm < N) s -> greedy N s ->
     sizes (run N s qs) = sizes s ++ qs /\ Forall (fun pm => snd pm < N) (run N s qs)
     /\ greedy N (run N s qs)).
  { induction qs as [|p qs IH]; intros s F G; simpl.
    - rewrite app_nil_r. auto.
    - destruct (argmin_spec (load s) N HN) as [A B].
      destruct (IH (s ++ [(p, argmin (load s) N)])) as (E & F' & G').
      + apply Forall_app. split; auto.
      + now apply greedy_snoc.
      + split; [|auto]. rewrite E. unfold sizes. rewrite map_app, <- app_assoc. reflexivity. }
  destruct (H ps []) as (E & F & G).
  - constructor.
  - intros s1 p i s2 E. destruct s1; discriminate.
  - repeat split; auto.
Qed.

(** T6 for the program itself *)
Theorem T6_LPT_program : forall N ps t,
  1 <= N -> nonincreasing ps -> schedules N ps t ->
  3 * N * cmax N (list_schedule N ps) <= (4 * N - 1) * cmax N t.
Proof.
  intros N ps t HN Hs T. destruct (list_schedule_correct N ps HN) as [A B].
  exact (T6_LPT N ps _ t HN Hs A B T).
Qed.
