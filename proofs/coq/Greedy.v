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

(** ** The k-th job that LPT puts on a machine is at most a k-th of any schedule's length

    Let [p] come after k jobs on machine b.  Cut every job into pieces of size [p], rests left
    out.  By the time of [p] every machine a has k pieces or more ([pace]), so with [p] there are
    more than N k, and some machine of the other schedule has k + 1. *)
Definition pieces (p : nat) (l : list nat) : nat := list_sum (map (fun q => q / p) l).

Lemma pieces_le p l : pieces p l * p <= list_sum l.
Proof.
  unfold pieces. induction l as [|q l IH]; simpl; [lia|].
  destruct p as [|p]; [lia|]. pose proof (Nat.mul_div_le q (S p) ltac:(lia)). nia.
Qed.

(** While LPT runs, with f pieces and load la on machine a, c jobs and load lb on machine b, and
    jobs to come of at most y: either a is ahead, and f >= c by as many pieces as it is ahead; or b
    is ahead, and f >= c, or else f + 1 = c and a job on a can't bring it a piece ahead. *)
Definition in_step (p y la f lb c : nat) : Prop :=
  (lb <= la /\ c * p + la < S f * p + lb) \/
  (la <= lb /\ (c <= f \/ (c <= S f /\ y + la < lb + p))).

(** a job on a, when it is behind *)
Lemma in_step_a p y x la f lb c :
  1 <= p -> p <= y -> y <= x -> la <= lb -> in_step p x la f lb c ->
  in_step p y (la + x) (f + x / p) lb c.
Proof.
  intros Hp Py Yx L H. unfold in_step in *.
  pose proof (Nat.div_mod x p ltac:(lia)) as D.
  pose proof (Nat.mod_upper_bound x p ltac:(lia)) as M.
  assert (1 <= x / p) by (apply Nat.div_le_lower_bound; lia).
  set (d := x / p) in *. clearbody d. set (r := x mod p) in *. clearbody r.
  assert (A : c <= f \/ (c <= S f /\ x + la < lb + p)).
  { destruct H as [[H1 H2]|[_ H]]; [left|exact H].
    apply Nat.lt_succ_r, (Nat.mul_lt_mono_pos_r p); lia. }
  clear H. destruct (le_lt_dec (la + x) lb) as [K|K]; [right; split; lia|left; split; [lia|]].
  destruct A as [A|[A B]].
  - apply (Nat.mul_le_mono_r _ _ p) in A. nia.
  - assert (c * p <= (f + d) * p) by (apply Nat.mul_le_mono_r; lia). nia.
Qed.

(** a job on b, when it is behind *)
Lemma in_step_b p y x la f lb c :
  1 <= p -> p <= y -> y <= x -> lb <= la -> in_step p x la f lb c ->
  in_step p y la f (lb + x) (S c).
Proof.
  intros Hp Py Yx L H. unfold in_step in *.
  assert (A : c * p + la < S f * p + lb).
  { destruct H as [[_ H]|[H1 [H2|H2]]]; [exact H| |lia].
    apply (Nat.mul_le_mono_r _ _ p) in H2. lia. }
  clear H. destruct (le_lt_dec (lb + x) la) as [K|K]; [left; split; lia|right; split; [lia|]].
  assert (C : c < S f) by (apply (Nat.mul_lt_mono_pos_r p); lia).
  destruct (Nat.eq_dec c f) as [->|]; [right; lia|left; lia].
Qed.

Lemma greedy_prefix N s t : greedy N (s ++ t) -> greedy N s.
Proof. intros G s1 p i s2 E. apply (G s1 p i (s2 ++ t)). rewrite E, <- app_assoc. reflexivity. Qed.

Lemma jobs_on_snoc s x m i :
  jobs_on (s ++ [(x, m)]) i = jobs_on s i ++ (if m =? i then [x] else []).
Proof. rewrite jobs_on_app. unfold jobs_on at 2. simpl. now destruct (m =? i). Qed.

Lemma sorted_prefix ps qs : nonincreasing (ps ++ qs) -> nonincreasing ps.
Proof.
  induction ps as [|a ps IH]; intros H; constructor; inversion_clear H as [|? ? S F].
  - now apply IH.
  - now apply Forall_app in F.
Qed.

(** so it is while LPT runs, whatever it does with equal loads *)
Lemma pace N p a b : 1 <= p -> a < N -> b < N -> a <> b -> forall s y,
  greedy N s -> nonincreasing (sizes s ++ [y]) -> p <= y ->
  in_step p y (load s a) (pieces p (jobs_on s a)) (load s b) (length (jobs_on s b)).
Proof.
  intros Hp Ha Hb Hne s. induction s as [|[x m] s IH] using rev_ind; intros y G Sd Py.
  - left. unfold load, pieces. simpl. lia.
  - pose proof (G s x m [] eq_refl) as Least.
    unfold sizes in Sd. rewrite map_app in Sd. simpl in Sd.
    assert (Yx : y <= x).
    { apply sorted_prefix_ge, Forall_app in Sd. destruct Sd as [_ Sd]. now inversion_clear Sd. }
    specialize (IH x (greedy_prefix _ _ _ G) (sorted_prefix _ _ Sd) ltac:(lia)).
    unfold load, pieces in *. rewrite !jobs_on_snoc, map_app, !list_sum_app, app_length.
    destruct (Nat.eqb_spec m a) as [Ma|Ma], (Nat.eqb_spec m b) as [Mb|Mb]; simpl;
      rewrite ?Nat.add_0_r, ?Nat.add_1_r; [congruence| | |].
    + subst m. now apply in_step_a; auto.
    + subst m. now apply in_step_b; auto.
    + unfold in_step in *. lia.
Qed.

(** when machine b is to take p, machine a has as many pieces as b has jobs *)
Lemma last_in_step p la f lb c : 1 <= p -> lb <= la -> in_step p p la f lb c -> c <= f.
Proof.
  intros Hp L [[_ H]|[H1 [H|H]]]; [|exact H|lia].
  apply Nat.lt_succ_r, (Nat.mul_lt_mono_pos_r p); lia.
Qed.

Theorem T6_position : forall N ps s t s1 p i s2,
  nonincreasing ps -> schedules N ps s -> greedy N s -> schedules N ps t ->
  s = s1 ++ (p, i) :: s2 -> S (length (jobs_on s1 i)) * p <= cmax N t.
Proof.
  intros N ps s t s1 p i s2 Hs [E F] G T Es.
  destruct (Nat.eq_dec p 0) as [->|Hp]; [lia|].
  set (k := length (jobs_on s1 i)).
  assert (Eps : ps = (sizes s1 ++ [p]) ++ sizes s2).
  { rewrite <- E, Es. unfold sizes. now rewrite map_app, <- app_assoc. }
  rewrite Es in F, G. apply Forall_app in F. destruct F as [F1 F2].
  assert (Hi : i < N) by now inversion_clear F2.
  assert (P : Forall (fun q => p <= q) (sizes s1 ++ [p])).
  { rewrite Eps in Hs. apply sorted_prefix, sorted_prefix_ge in Hs. apply Forall_app. auto. }
  assert (A : N * k <= sum N (fun j => pieces p (jobs_on s1 j))).
  { apply sum_ge_const. intros j Hj. destruct (Nat.eq_dec j i) as [->|Hji].
    - unfold k, pieces. rewrite <- (map_length (fun q => q / p)), <- (Nat.mul_1_r (length _)).
      apply sum_ge_length, Forall_map, Forall_forall. intros q Hq.
      apply Nat.div_le_lower_bound; [lia|].
      apply Forall_app in P. destruct P as [P _]. rewrite Forall_forall in P.
      specialize (P q (jobs_on_In _ _ _ Hq)). lia.
    - apply (last_in_step p (load s1 j) _ (load s1 i)); [lia|now apply (G s1 p i s2)|].
      apply (pace N); auto; [lia|now apply greedy_prefix in G|].
      rewrite Eps in Hs. now apply sorted_prefix in Hs. }
  unfold pieces in A. rewrite (weight_total _ N s1 F1) in A.
  rewrite Eps in T. destruct (split_prefix _ _ _ _ T) as (t1 & t2 & -> & [Et Ft] & _).
  pose proof (weight_total (fun q => q / p) N t1 Ft) as W.
  rewrite Et, map_app, list_sum_app in W. simpl in W. rewrite Nat.div_same in W by exact Hp.
  destruct (sum_pigeon N k (fun j => pieces p (jobs_on t1 j))) as (j & Hj & Hk);
    [unfold pieces; lia|].
  pose proof (pieces_le p (jobs_on t1 j)) as U. fold (load t1 j) in U.
  pose proof (load_cmax N (t1 ++ t2) j Hj) as L. rewrite load_app in L.
  apply (Nat.mul_le_mono_r _ _ p) in Hk. lia.
Qed.

(** ** T6, a posteriori: with k jobs on the fullest machine LPT is within (k+1)/k - 1/(kN)

    The last of those k jobs is at most a k-th of any schedule's length, and it is all that
    the fullest machine can be above the average, less its own share. *)
Theorem T6_sharper : forall N ps s t i,
  1 <= N -> Forall (fun p => 1 <= p) ps -> nonincreasing ps -> schedules N ps s -> greedy N s -> schedules N ps t ->
  i < N -> load s i = cmax N s -> let k := length (jobs_on s i) in
  k * N * cmax N s <= (S k * N - 1) * cmax N t.
Proof.
  intros N ps s t i HN Pos Hs Sp G T Hi Hl k.
  pose proof (T7_average N ps t T) as Av. pose proof Sp as [E F].
  destruct (last_job s i) as [Z|(s1 & p & s2 & Es & El)].
  { rewrite <- Hl, Z, Nat.mul_0_r. apply Nat.le_0_l. }
  assert (Eps : ps = sizes s1 ++ p :: sizes s2) by (rewrite <- E, Es; unfold sizes; now rewrite map_app).
  assert (K : k = S (length (jobs_on s1 i))).
  { assert (J : jobs_on s i = jobs_on s1 i ++ p :: jobs_on s2 i).
    { rewrite Es, jobs_on_app. f_equal. unfold jobs_on. simpl. now rewrite Nat.eqb_refl. }
    unfold k. rewrite J, app_length. destruct (jobs_on s2 i) as [|q l] eqn:O; simpl; [lia|]. exfalso.
    assert (Hq : In q ps).
    { rewrite Eps. apply in_or_app. right. right. apply (jobs_on_In s2 i). rewrite O. now left. }
    rewrite Forall_forall in Pos. specialize (Pos q Hq).
    unfold load in El at 1. rewrite J, list_sum_app in El. simpl in El. fold (load s1 i) in El. lia. }
  pose proof (T6_position N ps s t s1 p i s2 Hs Sp G T Es) as Kp. rewrite <- K in Kp.
  assert (F1 : Forall (fun pm => snd pm < N) s1) by (rewrite Es in F; now apply Forall_app in F).
  pose proof (step_bound N s1 i F1 (G s1 p i s2 Es)) as B.
  assert (Sum : list_sum (sizes s1) + p <= list_sum ps) by (rewrite Eps, list_sum_app; simpl; lia).
  rewrite <- Hl. set (C := load s i) in *. set (O := cmax N t) in *. clearbody k.
  assert (A1 : N * C <= N * O + (N - 1) * p) by nia.
  assert (A2 : k * (N * C) <= k * (N * O) + (N - 1) * O) by nia.
  replace (S k * N - 1) with (k * N + (N - 1)) by lia. lia.
Qed.

(** the same, weaker: kN/(kN-N+1) *)
Theorem T6_aposteriori : forall N ps s t i,
  1 <= N -> Forall (fun p => 1 <= p) ps -> nonincreasing ps -> schedules N ps s -> greedy N s -> schedules N ps t ->
  i < N -> load s i = cmax N s -> let k := length (jobs_on s i) in
  (k * N - (N - 1)) * cmax N s <= k * N * cmax N t.
Proof.
  intros N ps s t i HN Pos Hs Sp G T Hi Hl k.
  assert (A : k * N * cmax N s <= (S k * N - 1) * cmax N t) by now apply (T6_sharper N ps).
  clearbody k.
  destruct (Nat.eq_dec k 0) as [->|Hk]; [simpl; lia|].
  assert (P : 0 < k * N) by nia.
  assert (Hm : exists m, k * N = m + (N - 1)) by (exists (k * N - (N - 1)); nia).
  destruct Hm as [m Hm]. replace (S k * N - 1) with (m + 2 * (N - 1)) in A by lia.
  rewrite Hm in *. clear Hm Hl. replace (m + (N - 1) - (N - 1)) with m by lia.
  set (C := cmax N s) in *. set (O := cmax N t) in *. set (r := N - 1) in *. clearbody C O r.
  apply (Nat.mul_le_mono_pos_l _ _ (m + r)); [exact P|]. apply (Nat.mul_le_mono_l _ _ m) in A.
  pose proof (Nat.le_0_l (r * r * O)). lia.
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
