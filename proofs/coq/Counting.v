(** * T7, first half: witnesses that count (average, count, pigeonhole)

    Each [by_... caps ps] is a boolean that the kernel computes.  If it is true, no assignment
    of the jobs [ps] keeps each rail within its room.  The programs search nothing and trust
    nothing: that the jobs come sorted, say, is not assumed; if they don't, the program only
    fails to refute. *)
From Coq Require Import Arith NArith Lia List Bool Permutation.
From Rails Require Import Jobs.
Import ListNotations.
Open Scope N_scope.

(** ** Sub-multisets: what one rail carries *)

Inductive sub {A} : list A -> list A -> Prop :=
| sub_nil : sub [] []
| sub_skip x t l : sub t l -> sub t (x :: l)
| sub_take x t l : sub t l -> sub (x :: t) (x :: l).

Lemma on_sub {A} r (xs : list A) a : length a = length xs -> sub (on r xs a) xs.
Proof.
  revert a. induction xs as [|x xs IH]; intros [|i a] L; try discriminate; [constructor|].
  rewrite on_cons. destruct (i =? r)%nat; constructor; apply IH; simpl in L; lia.
Qed.

Lemma sub_In {A} (t l : list A) x : sub t l -> In x t -> In x l.
Proof. induction 1; simpl; intros H1; intuition. Qed.

Lemma rooms_total (f : N -> N) caps :
  total (map (fun r => f (nth r caps 0)) (seq 0 (length caps))) = total (map f caps).
Proof.
  induction caps as [|c caps IH]; [reflexivity|]. simpl length. rewrite <- cons_seq, <- seq_shift.
  simpl map. rewrite map_map, !total_cons. simpl nth. now rewrite <- IH.
Qed.

Lemma total_mono {A} (f g : A -> N) l : (forall x, In x l -> f x <= g x) -> total (map f l) <= total (map g l).
Proof.
  induction l as [|a l IH]; intros H; simpl map; rewrite ?total_cons; [reflexivity|].
  pose proof (H a (or_introl eq_refl)). specialize (IH (fun x Hx => H x (or_intror Hx))). lia.
Qed.

(** the shape of almost every bound: if whatever fits on a rail of room [c] weighs at most
    [f c], and all jobs together weigh more than all rails allow, the rooms are refuted *)
Lemma outweighed {A} (s w : A -> N) (xs : list A) caps (f : N -> N) :
  (forall t c, sub t xs -> In c caps -> total (map s t) <= c -> total (map w t) <= f c) ->
  total (map f caps) < total (map w xs) -> refuted caps (map s xs).
Proof.
  intros H Hw a [L F] C. rewrite map_length in L.
  rewrite <- (count_rails w xs a (length caps) L F), <- rooms_total in Hw.
  apply N.lt_nge in Hw. apply Hw, total_mono. intros r Hr. apply in_seq in Hr.
  apply H; [now apply on_sub|apply nth_In; lia|]. specialize (C r ltac:(lia)).
  unfold load in C. now rewrite on_map in C.
Qed.

(** ** Average: all rails together have too little room *)

Definition by_average (caps ps : list N) : bool := total caps <? total ps.

Theorem T7_average_sound : forall caps ps, by_average caps ps = true -> refuted caps ps.
Proof.
  unfold by_average. intros caps ps H. apply N.ltb_lt in H. rewrite <- (map_id ps).
  apply (outweighed (fun p => p) (fun p => p) ps caps (fun c => c)); [|now rewrite !map_id].
  intros t c _ _ Hc. exact Hc.
Qed.

(** ** Units: sizes and rooms may be counted in a common divisor of the sizes *)

Definition common (ps : list N) : N := fold_right N.gcd 0 ps.
Definition in_units (g : N) (l : list N) : list N := map (fun p => p / g) l.

Lemma common_divides p ps : In p ps -> (common ps | p).
Proof.
  induction ps as [|q ps IH]; [easy|]. intros [->|H]; simpl.
  - apply N.gcd_divide_l.
  - transitivity (common ps); [apply N.gcd_divide_r|auto].
Qed.

Lemma total_units g t : g <> 0 -> (forall p, In p t -> (g | p)) -> total t = g * total (in_units g t).
Proof.
  intros Hg. induction t as [|p t IH]; intros H; [now rewrite N.mul_0_r|].
  simpl in_units. rewrite !total_cons, IH by (intros; apply H; now right).
  destruct (H p (or_introl eq_refl)) as [k ->]. rewrite N.div_mul by assumption. lia.
Qed.

Lemma refuted_units caps ps : common ps <> 0 ->
  refuted (in_units (common ps) caps) (in_units (common ps) ps) -> refuted caps ps.
Proof.
  intros Hg H a [L F] C. set (g := common ps) in *. apply (H a).
  - split; unfold in_units; rewrite !map_length; assumption.
  - intros r Hr. unfold in_units in Hr. rewrite map_length in Hr. specialize (C r Hr).
    unfold load, in_units. rewrite on_map. fold (in_units g (on r ps a)).
    rewrite (nth_indep _ 0 ((fun p => p / g) 0)), (map_nth (fun p => p / g)) by (now rewrite map_length).
    unfold load in C. rewrite (total_units g) in C; [|exact Hg|].
    + apply N.div_le_lower_bound; lia.
    + intros p Hp. apply common_divides. eapply on_In; eauto.
Qed.

(** ** Few jobs cost at least this much: the bound behind counting

    For any threshold [th], [n] jobs of [ps] have [n th] bytes less what they fall short of
    it, and they can't fall short by more than all jobs do together.  With [th] the n-th
    smallest size this is exactly the sum of the n smallest. *)

Definition short (th : N) (ps : list N) : N := total (map (fun p => th - p) ps).

Lemma total_short th ps : N.of_nat (length ps) * th <= total ps + short th ps.
Proof.
  unfold short. induction ps as [|p ps IH]; [reflexivity|].
  simpl map. simpl length. rewrite !total_cons. lia.
Qed.

Lemma sub_short th t ps : sub t ps -> short th t <= short th ps.
Proof. unfold short. induction 1; simpl map; rewrite ?total_cons; lia. Qed.

(** ** Count: how many of the [j] first jobs can each rail take? (rooms may differ) *)

(** the largest number of jobs, of those listed from the smallest, that fit in room [c] *)
Fixpoint fill (c : N) (asc : list N) : nat :=
  match asc with p :: asc => if p <=? c then S (fill (c - p) asc) else 0%nat | [] => 0%nat end.

(** at most [n] jobs of [ps] fit in room [c] *)
Definition at_most (ps : list N) (n : nat) (th c : N) : bool :=
  (length ps <=? n)%nat || (c + short th ps <? (N.of_nat n + 1) * th).

Definition by_count (j : N) (caps ps : list N) : bool :=
  let ps := firstn (N.to_nat j) ps in
  let asc := rev ps in
  let entry := fun c => let n := fill c asc in (n, at_most ps n (nth n asc 0) c) in
  forallb (fun c => snd (entry c)) caps
  && (total (map (fun c => N.of_nat (fst (entry c))) caps) <? N.of_nat (length ps)).

Lemma total_ones {A} (l : list A) : total (map (fun _ => 1) l) = N.of_nat (length l).
Proof. induction l as [|a l IH]; [reflexivity|]. simpl map. rewrite total_cons, IH. simpl length. lia. Qed.

Lemma sub_length {A} (t l : list A) : sub t l -> (length t <= length l)%nat.
Proof. induction 1; simpl; lia. Qed.

Lemma at_most_sound ps n th c t :
  at_most ps n th c = true -> sub t ps -> total t <= c -> (length t <= n)%nat.
Proof.
  unfold at_most. intros H S Ht. apply orb_prop in H. destruct H as [H|H].
  - apply Nat.leb_le in H. apply sub_length in S. lia.
  - apply N.ltb_lt in H. pose proof (total_short th t). apply (sub_short th) in S.
    destruct (le_lt_dec (length t) n) as [|Hlt]; auto. exfalso. nia.
Qed.

(** more jobs only add load *)
Lemma refuted_firstn caps ps n : refuted caps (firstn n ps) -> refuted caps ps.
Proof.
  intros H a [L F] C. apply (H (firstn n a)).
  - split; [rewrite !firstn_length; lia|]. rewrite Forall_forall in *. intros r Hr. apply F.
    rewrite <- (firstn_skipn n a). apply in_or_app. now left.
  - intros r Hr. specialize (C r Hr). unfold load in *.
    rewrite <- (firstn_skipn n ps), <- (firstn_skipn n a), on_app, total_app in C
      by (rewrite !firstn_length; lia). lia.
Qed.

Theorem T7_count_sound : forall j caps ps, by_count j caps ps = true -> refuted caps ps.
Proof.
  unfold by_count. intros j caps ps H. apply (refuted_firstn caps ps (N.to_nat j)).
  set (qs := firstn (N.to_nat j) ps) in *. clearbody qs. simpl in H.
  apply andb_prop in H. destruct H as [A B]. apply N.ltb_lt in B. rewrite forallb_forall in A.
  rewrite <- (map_id qs).
  apply (outweighed (fun p => p) (fun _ => 1) qs caps (fun c => N.of_nat (fill c (rev qs))));
    [|now rewrite total_ones]. intros t c S Hc Ht. rewrite map_id in Ht. rewrite total_ones.
  specialize (A c Hc). pose proof (at_most_sound _ _ _ _ _ A S Ht). lia.
Qed.

(** ** Pigeonhole: of the [l] first jobs, some [k] of R equal rails carry at least
       lam = k (l/R) + min(k, l mod R), hence the lam smallest of them or worse.
       A rail without room (a dead one) carries nothing: it is no hole. *)

Definition by_pigeonhole (l k : N) (caps ps : list N) : bool :=
  let live := filter (N.ltb 0) caps in
  let c := hd 0 live in
  let R := N.of_nat (length live) in
  let lam := k * (l / R) + N.min k (l mod R) in
  let ps := firstn (N.to_nat l) ps in
  let th := nth (N.to_nat (l - lam)) ps 0 in
  forallb (N.eqb c) live && forallb (N.ltb 0) ps && (k <=? R) && (l =? N.of_nat (length ps))
  && (k * c + short th ps <? lam * th).

Lemma take_max (c : nat -> N) rs : rs <> [] ->
  exists x rest, Permutation rs (x :: rest) /\ forall y, In y rest -> c y <= c x.
Proof.
  induction rs as [|r rs IH]; [easy|]. intros _. destruct rs as [|s rs].
  - exists r, []. split; [reflexivity|easy].
  - destruct IH as (x & rest & P & M); [easy|]. destruct (N.le_gt_cases (c x) (c r)) as [Hle|Hgt].
    + exists r, (s :: rs). split; [reflexivity|]. intros y Hy. apply (Permutation_in y P) in Hy.
      destruct Hy as [->|Hy]; [assumption|]. specialize (M y Hy). lia.
    + exists x, (r :: rest). split; [rewrite P; apply perm_swap|].
      intros y [->|Hy]; [lia|auto].
Qed.

Lemma take_largest (c : nat -> N) k : forall rs, (k <= length rs)%nat ->
  exists K rest, Permutation rs (K ++ rest) /\ length K = k /\
    forall x y, In x K -> In y rest -> c y <= c x.
Proof.
  induction k as [|k IH]; intros rs H.
  - exists [], rs. repeat split; easy.
  - destruct (IH rs ltac:(lia)) as (K & rest & P & L & M).
    destruct (take_max c rest) as (x & rest' & P' & M').
    { intros ->. apply Permutation_length in P. rewrite app_nil_r in P. lia. }
    exists (x :: K), rest'. repeat split; [|simpl; lia|].
    + rewrite P, P'. symmetry. apply Permutation_middle.
    + intros z y Hz Hy. assert (In y rest) by (apply (Permutation_in y (Permutation_sym P')); now right).
      destruct Hz as [<-|Hz]; auto.
Qed.

Lemma total_const_ge d (c : nat -> N) K :
  (forall x, In x K -> d <= c x) -> N.of_nat (length K) * d <= total (map c K).
Proof.
  induction K as [|x K IH]; intros H; [reflexivity|]. simpl map. simpl length. rewrite total_cons.
  pose proof (H x (or_introl eq_refl)). specialize (IH (fun z Hz => H z (or_intror Hz))). lia.
Qed.

Lemma total_const_le d (c : nat -> N) K :
  (forall x, In x K -> c x <= d) -> total (map c K) <= N.of_nat (length K) * d.
Proof.
  induction K as [|x K IH]; intros H; [reflexivity|]. simpl map. simpl length. rewrite total_cons.
  pose proof (H x (or_introl eq_refl)). specialize (IH (fun z Hz => H z (or_intror Hz))). lia.
Qed.

Lemma busiest (c : nat -> N) rs k d e : (k <= length rs)%nat ->
  total (map c rs) = N.of_nat (length rs) * d + e ->
  exists K rest, Permutation rs (K ++ rest) /\ length K = k /\
    N.of_nat k * d + N.min (N.of_nat k) e <= total (map c K).
Proof.
  intros Hk E. destruct (take_largest c k rs Hk) as (K & rest & P & L & M).
  exists K, rest. repeat split; auto.
  assert (E2 : total (map c K) + total (map c rest) = N.of_nat (length rs) * d + e).
  { rewrite <- E, <- total_app, <- map_app. apply total_perm, Permutation_map. now symmetry. }
  assert (L2 : length rs = (length K + length rest)%nat) by (apply Permutation_length in P; now rewrite app_length in P).
  destruct (existsb (fun y => d <? c y) rest) eqn:X.
  - apply existsb_exists in X. destruct X as (y & Hy & Hd). apply N.ltb_lt in Hd.
    pose proof (total_const_ge (d + 1) c K) as G. rewrite L in G.
    assert (N.of_nat k * (d + 1) <= total (map c K)); [apply G|lia].
    intros x Hx. specialize (M x y Hx Hy). lia.
  - pose proof (total_const_le d c rest) as G. assert (total (map c rest) <= N.of_nat (length rest) * d); [apply G|nia].
    intros y Hy. apply N.ltb_ge. destruct (d <? c y) eqn:Y; auto.
    rewrite <- X. symmetry. apply existsb_exists. exists y. auto.
Qed.

Lemma total_sub_le (f : nat -> N) K rest rs : Permutation rs (K ++ rest) -> total (map f K) <= total (map f rs).
Proof.
  intros P. rewrite (total_perm _ _ (Permutation_map f P)), map_app, total_app. lia.
Qed.

(** rails of room 0 carry no job *)
Lemma dead_empty ps a r : (forall p, In p ps -> 0 < p) -> load ps a r <= 0 -> on r ps a = [].
Proof.
  intros H E. unfold load in E. destruct (on r ps a) as [|p t] eqn:O; [reflexivity|].
  rewrite total_cons in E. assert (In p ps) by (apply (on_In r ps a); rewrite O; now left).
  specialize (H p H0). lia.
Qed.

Lemma total_filter (f : nat -> N) (P : nat -> bool) rs :
  (forall r, In r rs -> P r = false -> f r = 0) -> total (map f (filter P rs)) = total (map f rs).
Proof.
  induction rs as [|r rs IH]; intros H; [reflexivity|]. simpl filter.
  specialize (IH (fun s Hs => H s (or_intror Hs))). pose proof (H r (or_introl eq_refl)) as Hr.
  destruct (P r); simpl map; rewrite !total_cons, IH; [reflexivity|]. rewrite (Hr eq_refl). reflexivity.
Qed.

Lemma total_filter_le (f : nat -> N) (P : nat -> bool) rs : total (map f (filter P rs)) <= total (map f rs).
Proof.
  induction rs as [|r rs IH]; [reflexivity|]. simpl filter.
  destruct (P r); simpl map; rewrite !total_cons; lia.
Qed.

Lemma filter_rails (P : N -> bool) caps :
  length (filter (fun r => P (nth r caps 0)) (seq 0 (length caps))) = length (filter P caps).
Proof.
  induction caps as [|c caps IH]; [reflexivity|]. change (length (c :: caps)) with (S (length caps)).
  rewrite <- cons_seq, <- seq_shift.
  assert (E : forall (Q : nat -> bool) rs, length (filter Q (map S rs)) = length (filter (fun r => Q (S r)) rs)).
  { intros Q. induction rs as [|r rs IHr]; [reflexivity|]. simpl. destruct (Q (S r)); simpl; now rewrite IHr. }
  cbn [filter nth]. destruct (P c); cbn [length]; rewrite E; now rewrite <- IH.
Qed.

Theorem T7_pigeonhole_sound : forall l k caps ps, by_pigeonhole l k caps ps = true -> refuted caps ps.
Proof.
  unfold by_pigeonhole. intros l k caps ps H. apply (refuted_firstn caps ps (N.to_nat l)).
  set (qs := firstn (N.to_nat l) ps) in *. clearbody qs. clear ps.
  set (live := filter (N.ltb 0) caps) in *.
  set (c := hd 0 live) in *. set (R := N.of_nat (length live)) in *.
  set (lam := k * (l / R) + N.min k (l mod R)) in *. set (th := nth _ qs 0) in *. clearbody th c.
  apply andb_prop in H. destruct H as [H Hx]. apply andb_prop in H. destruct H as [H Hl].
  apply andb_prop in H. destruct H as [H Hk]. apply andb_prop in H. destruct H as [Hc Hp].
  apply N.ltb_lt in Hx. apply N.eqb_eq in Hl. apply N.leb_le in Hk.
  rewrite forallb_forall in Hc, Hp. intros a [L F] C.
  assert (Pos : forall p, In p qs -> 0 < p) by (intros p Hin; now apply N.ltb_lt, Hp).
  set (open := fun r => 0 <? nth r caps 0).
  set (rails := filter open (seq 0 (length caps))).
  assert (Lr : length rails = length live) by (apply (filter_rails (N.ltb 0))).
  set (cnt := fun r => total (map (fun _ => 1) (on r qs a))).
  assert (Ec : total (map cnt rails) = l).
  { unfold rails. rewrite total_filter.
    - unfold cnt. rewrite count_rails by assumption. now rewrite total_ones.
    - intros r Hr Ho. apply in_seq in Hr. apply N.ltb_ge in Ho. specialize (C r ltac:(lia)).
      unfold cnt. rewrite (dead_empty qs a r Pos); [reflexivity|]. lia. }
  destruct (busiest cnt rails (N.to_nat k) (l / R) (l mod R)) as (K & rest & P & LK & Hlam).
  { rewrite Lr. lia. }
  { rewrite Ec, Lr. fold R. destruct (N.eq_dec R 0) as [->|]; [|now apply N.div_mod].
    rewrite N.mul_0_l. destruct l; reflexivity. }
  rewrite N2Nat.id in Hlam. fold lam in Hlam.
  assert (A : forall rs, total (map cnt rs) * th <= total (map (load qs a) rs) + total (map (fun r => short th (on r qs a)) rs)).
  { induction rs as [|r rs IH]; [reflexivity|]. simpl map. rewrite !total_cons.
    pose proof (total_short th (on r qs a)). unfold load at 1. unfold cnt at 1. rewrite total_ones. lia. }
  specialize (A K).
  assert (B : total (map (load qs a) K) <= N.of_nat (length K) * c).
  { apply total_const_le. intros r Hr.
    assert (Hin : In r rails) by (apply (Permutation_in r (Permutation_sym P)), in_or_app; now left).
    apply filter_In in Hin. destruct Hin as [Hin Ho]. apply in_seq in Hin. specialize (C r ltac:(lia)).
    assert (Hn : In (nth r caps 0) live) by (apply filter_In; split; [apply nth_In; lia|exact Ho]).
    pose proof (Hc _ Hn) as E. apply N.eqb_eq in E. lia. }
  assert (D : total (map (fun r => short th (on r qs a)) K) <= short th qs).
  { transitivity (total (map (fun r => short th (on r qs a)) (seq 0 (length caps)))).
    - transitivity (total (map (fun r => short th (on r qs a)) rails)); [eapply total_sub_le; eassumption|].
      apply total_filter_le.
    - unfold short. rewrite (count_rails (fun p => th - p) qs a (length caps) L F). reflexivity. }
  rewrite LK, N2Nat.id in B. nia.
Qed.
