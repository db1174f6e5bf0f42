(** * Jobs on rails in binary numbers: the instances that certificates speak about

    The same problem as in [Schedule], in numbers that fit real byte counts: sizes and rates
    are [N], times are rationals.  Below, a certificate is an argument that no assignment
    keeps every rail [r] within some integer room [caps r]. *)
From Coq Require Import Arith NArith QArith Lia Lqa List Bool Permutation.
From Rails Require Schedule.
Import ListNotations.
Open Scope nat_scope.

(** ** Definitions *)

Definition total (l : list N) : N := fold_right N.add 0%N l.

(** [a] gives every job of [ps] one of the rails 0 .. R-1 *)
Definition placed (R : nat) (ps : list N) (a : list nat) : Prop :=
  length a = length ps /\ Forall (fun r => r < R) a.

(** those of [xs] that [a] puts on rail [r], in order *)
Definition on {A} (r : nat) (xs : list A) (a : list nat) : list A :=
  map fst (filter (fun z => snd z =? r) (combine xs a)).

(** bytes on rail [r], and on the fullest rail *)
Definition load (ps : list N) (a : list nat) (r : nat) : N := total (on r ps a).
Definition makespan (R : nat) (ps : list N) (a : list nat) : N :=
  fold_right N.max 0%N (map (load ps a) (seq 0 R)).

(** all rails are done by time [t], rail [r] moving [nth r speeds 0] bytes a unit of time *)
Definition finishes (speeds ps : list N) (a : list nat) (t : Q) : Prop :=
  forall r, r < length speeds ->
    (inject_Z (Z.of_N (load ps a r)) <= t * inject_Z (Z.of_N (nth r speeds 0%N)))%Q.

(** no assignment leaves every rail [r] with at most [nth r caps 0] bytes *)
Definition refuted (caps ps : list N) : Prop :=
  forall a, placed (length caps) ps a ->
    ~ (forall r, r < length caps -> (load ps a r <= nth r caps 0)%N).

(** the room that a time short of [p/q] leaves on a rail: the largest integer below v p/q, 0 if v = 0 *)
Definition room (p q v : N) : N := ((p * v - 1) / q)%N.

(** ** Facts about [on] and [load] *)

Lemma on_cons {A} r (x : A) xs i a : on r (x :: xs) (i :: a) = (if i =? r then [x] else []) ++ on r xs a.
Proof. unfold on. simpl. destruct (i =? r); reflexivity. Qed.

Lemma on_map {A B} (f : A -> B) r xs a : on r (map f xs) a = map f (on r xs a).
Proof.
  revert a. induction xs as [|x xs IH]; intros [|i a]; try reflexivity.
  simpl map. rewrite !on_cons, IH, map_app. destruct (i =? r); reflexivity.
Qed.

Lemma on_app {A} r (xs ys : list A) a b : length a = length xs ->
  on r (xs ++ ys) (a ++ b) = on r xs a ++ on r ys b.
Proof.
  revert a. induction xs as [|x xs IH]; intros [|i a] H; try discriminate; [reflexivity|].
  simpl app. rewrite !on_cons, IH, app_assoc by (simpl in H; lia). reflexivity.
Qed.

Lemma on_In {A} r (xs : list A) a x : In x (on r xs a) -> In x xs.
Proof.
  unfold on. rewrite in_map_iff. intros [[y i] [E H]]. simpl in E. subst y.
  apply filter_In in H. exact (in_combine_l _ _ _ _ (proj1 H)).
Qed.

Lemma total_cons x l : total (x :: l) = (x + total l)%N.
Proof. reflexivity. Qed.

Lemma total_app l m : total (l ++ m) = (total l + total m)%N.
Proof. induction l as [|a l IH]; simpl; lia. Qed.

Lemma total_le l m : Forall2 N.le l m -> (total l <= total m)%N.
Proof. induction 1; simpl; lia. Qed.

Lemma total_perm l m : Permutation l m -> total l = total m.
Proof. induction 1; simpl; lia. Qed.

(** ** Double counting: whatever is counted per job is the same summed rail by rail *)
Lemma count_rails {A} (w : A -> N) (xs : list A) a R :
  length a = length xs -> Forall (fun r => r < R) a ->
  total (map (fun r => total (map w (on r xs a))) (seq 0 R)) = total (map w xs).
Proof.
  revert a. induction xs as [|x xs IH]; intros [|i a] L F; try discriminate.
  - simpl. induction (seq 0 R); simpl; auto.
  - inversion_clear F as [|? ? Hi F']. simpl in L.
    assert (Z : forall rs, total (map (fun r => total (map w (on r (x :: xs) (i :: a)))) rs)
      = (w x * N.of_nat (length (filter (Nat.eqb i) rs))
         + total (map (fun r => total (map w (on r xs a))) rs))%N).
    { induction rs as [|r rs IHr]; [simpl; lia|]. simpl map. rewrite !total_cons, IHr, on_cons.
      simpl filter. destruct (i =? r); simpl app; simpl map; simpl length; rewrite ?total_cons; lia. }
    rewrite Z, (IH a ltac:(lia) F'). simpl map. rewrite total_cons.
    assert (E : forall n s, length (filter (Nat.eqb i) (seq s n)) = if (s <=? i) && (i <? s + n) then 1 else 0).
    { induction n as [|n IHn]; intros s; simpl.
      - destruct (Nat.leb_spec s i), (Nat.ltb_spec i (s + 0)); simpl; lia.
      - rewrite <- (Nat.add_succ_comm s n). specialize (IHn (S s)).
        destruct (Nat.eqb_spec i s), (Nat.leb_spec s i), (Nat.leb_spec (S s) i),
          (Nat.ltb_spec i (S s + n)); simpl in *; try lia. }
    rewrite E. simpl. apply Nat.ltb_lt in Hi. rewrite Hi. lia.
Qed.

(** the order of the jobs is irrelevant *)
Lemma refuted_perm caps ps qs : Permutation ps qs -> refuted caps qs -> refuted caps ps.
Proof.
  intros P H a [L F] C.
  assert (E : map fst (combine ps a) = ps) by (clear - L; revert a L; induction ps; intros [|] L;
    simpl in *; try discriminate; auto; f_equal; auto).
  assert (E2 : map snd (combine ps a) = a) by (clear - L; revert a L; induction ps; intros [|] L;
    simpl in *; try discriminate; auto; f_equal; auto).
  assert (P' : Permutation qs (map fst (combine ps a))) by (rewrite E; now symmetry).
  apply Permutation_map_inv in P'. destruct P' as (z & -> & Pz).
  apply (H (map snd z)).
  - split; [now rewrite !map_length|]. rewrite Forall_forall in *. intros r Hr.
    apply F. rewrite <- E2. apply (Permutation_in r (l := map snd z)); auto.
    apply Permutation_map. now symmetry.
  - intros r Hr. specialize (C r Hr). unfold load, on in *.
    assert (Ez : combine (map fst z) (map snd z) = z).
    { clear. induction z as [|[p i] z IH]; simpl; [|rewrite IH]; reflexivity. }
    rewrite Ez. erewrite total_perm; [exact C|]. apply Permutation_map.
    clear - Pz. induction Pz; simpl; repeat match goal with |- context [if ?b then _ else _] => destruct b end;
      auto; try (now constructor). now transitivity (filter (fun z => snd z =? r) l').
Qed.

(** ** From refuted rooms to bounds *)

Lemma makespan_ge R ps a B : (forall r, r < R -> (load ps a r < B)%N) -> (0 < B)%N -> (makespan R ps a < B)%N.
Proof.
  intros H HB. unfold makespan.
  assert (G : forall rs, (forall r, In r rs -> r < R) -> (fold_right N.max 0 (map (load ps a) rs) < B)%N).
  { induction rs as [|r rs IH]; intros Hr; simpl; [exact HB|].
    specialize (H r (Hr r (or_introl eq_refl))). specialize (IH (fun s Hs => Hr s (or_intror Hs))). lia. }
  apply G. intros r Hr. apply in_seq in Hr. lia.
Qed.

(** equal rails: if rooms of B - 1 are refuted, every assignment has a rail with B bytes or more *)
Theorem T7_bytes : forall R ps B, refuted (repeat (B - 1)%N R) ps ->
  forall a, placed R ps a -> (B <= makespan R ps a)%N.
Proof.
  intros R ps B H a P. destruct (N.le_gt_cases B (makespan R ps a)) as [|Hlt]; auto. exfalso.
  apply (H a); rewrite repeat_length; [exact P|]. intros r Hr.
  assert (load ps a r <= makespan R ps a)%N.
  { unfold makespan. assert (In r (seq 0 R)) by (apply in_seq; lia).
    induction (seq 0 R) as [|s rs IH]; [easy|]. destruct H0 as [->|Hin]; simpl; [lia|].
    specialize (IH Hin). lia. }
  rewrite (nth_indep _ 0%N (B - 1)%N), nth_repeat by (now rewrite repeat_length). lia.
Qed.

(** what is done before p/q at speed [v] has its room *)
Lemma before_room (p : N) (q : positive) t v l : (t < Z.of_N p # q)%Q ->
  (inject_Z (Z.of_N l) <= t * inject_Z (Z.of_N v))%Q -> (l <= room p (Npos q) v)%N.
Proof.
  intros Hlt Fi. unfold room. apply N.div_le_lower_bound; [lia|].
  destruct (N.eq_0_gt_0_cases v) as [->|Hv].
  - assert (l = 0%N); [|lia]. unfold Qle, Qmult, inject_Z in Fi. simpl in Fi. nia.
  - assert (E : (inject_Z (Z.of_N l) < (Z.of_N p # q) * inject_Z (Z.of_N v))%Q).
    { eapply Qle_lt_trans; [exact Fi|]. apply Qmult_lt_compat_r; [|exact Hlt].
      unfold Qlt, inject_Z; simpl. lia. }
    unfold Qlt, Qmult, inject_Z in E. simpl in E. nia.
Qed.

(** rails with speeds: if the rooms that a time below p/q leaves are refuted, nothing ends before p/q *)
Theorem T7_time : forall speeds ps (p : N) (q : positive),
  refuted (map (room p (Npos q)) speeds) ps ->
  forall a t, placed (length speeds) ps a -> finishes speeds ps a t -> ((Z.of_N p # q) <= t)%Q.
Proof.
  intros speeds ps p q H a t P Fi. destruct (Qlt_le_dec t (Z.of_N p # q)) as [Hlt|]; auto. exfalso.
  apply (H a); rewrite map_length; [exact P|]. intros r Hr. specialize (Fi r Hr).
  rewrite (nth_indep _ 0%N (room p (Npos q) 0)) by (now rewrite map_length).
  rewrite map_nth. eapply before_room; eauto.
Qed.

(** ** The other half: an assignment that attains a value *)

Definition attains (R : nat) (ps : list N) (a : list nat) (V : N) : bool :=
  (length a =? length ps) && forallb (fun r => r <? R) a && (makespan R ps a <=? V)%N.

Theorem T7_attained : forall R ps a V, attains R ps a V = true ->
  exists a, placed R ps a /\ (makespan R ps a <= V)%N.
Proof.
  unfold attains. intros R ps a V H. apply andb_prop in H. destruct H as [H HV].
  apply andb_prop in H. destruct H as [HL HR]. exists a. split; [split|].
  - now apply Nat.eqb_eq.
  - rewrite forallb_forall in HR. apply Forall_forall. intros r Hr. now apply Nat.ltb_lt, HR.
  - now apply N.leb_le.
Qed.

Definition attains_time (speeds ps : list N) (a : list nat) (p : N) (q : positive) : bool :=
  (length a =? length ps) && forallb (fun r => r <? length speeds) a
  && forallb (fun r => (Npos q * load ps a r <=? p * nth r speeds 0)%N) (seq 0 (length speeds)).

Lemma scaled_le q l p v : (Npos q * l <= p * v)%N ->
  (inject_Z (Z.of_N l) <= (Z.of_N p # q) * inject_Z (Z.of_N v))%Q.
Proof. intros H. unfold Qle, Qmult, inject_Z. simpl. nia. Qed.

Theorem T7_attained_time : forall speeds ps a p q, attains_time speeds ps a p q = true ->
  exists a, placed (length speeds) ps a /\ finishes speeds ps a (Z.of_N p # q).
Proof.
  unfold attains_time. intros speeds ps a p q H. apply andb_prop in H. destruct H as [H HV].
  apply andb_prop in H. destruct H as [HL HR]. exists a. split; [split|].
  - now apply Nat.eqb_eq.
  - rewrite forallb_forall in HR. apply Forall_forall. intros r Hr. now apply Nat.ltb_lt, HR.
  - intros r Hr. rewrite forallb_forall in HV. apply scaled_le, N.leb_le, HV, in_seq. lia.
Qed.

(** ** The same problem as in [Schedule] *)
Theorem T7_same_model : forall R ps a, placed R ps a -> let s := combine (map N.to_nat ps) a in
  Schedule.schedules R (map N.to_nat ps) s /\ Schedule.cmax R s = N.to_nat (makespan R ps a).
Proof.
  intros R ps a [L F] s.
  assert (Load : forall r, Schedule.load s r = N.to_nat (load ps a r)).
  { intros r. subst s. clear F L. revert a. induction ps as [|p ps IH]; intros [|i a]; try reflexivity.
    unfold load. rewrite on_cons, total_app, N2Nat.inj_add. fold (load ps a r). rewrite <- IH.
    unfold Schedule.load, Schedule.jobs_on. simpl. destruct (i =? r); simpl; lia. }
  split; [split|].
  - unfold Schedule.sizes, s. clear F Load s. revert a L. induction ps as [|p ps IH]; intros [|i a] L; simpl in *; try discriminate; auto.
    f_equal. apply IH. lia.
  - apply Forall_forall. intros [p i] Hin. apply in_combine_r in Hin. rewrite Forall_forall in F. exact (F i Hin).
  - unfold Schedule.cmax, makespan. induction (seq 0 R) as [|r rs IH]; [reflexivity|].
    simpl. rewrite IH, Load, N2Nat.inj_max. reflexivity.
Qed.
