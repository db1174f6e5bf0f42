(** * What a plan moves inside nodes, in binary numbers: the programs behind T14's certificates

    A unit starts on a GPU, goes over one rail to another node, and is needed by some of its GPUs.
    Sets of GPUs are numbers: bit g stands for GPU g. *)
From Coq Require Import Arith NArith ZArith QArith Lia List Bool.
From Rails Require Import QSums Jobs Counting Certificate Fluid Loads.
Import ListNotations.
Open Scope N_scope.

(** [start] counts the GPUs of all nodes, [gpus] a node *)
Record unit_ := Unit { start : N; into : nat; weight : N; needs : N }.
Definition home (gpus : N) (u : unit_) : nat := N.to_nat (start u / gpus).
Definition chunk_of_unit (gpus : N) (u : unit_) : chunk := Chunk (home gpus u) (into u) (weight u).

Fixpoint ones_of (p : positive) : N :=
  match p with xH => 1 | xO p => ones_of p | xI p => 1 + ones_of p end.
Definition members (s : N) : N := match s with 0 => 0 | Npos p => ones_of p end.

(** how often a byte is moved, by the GPUs near its rail's NIC: before the rail if its own is not
    among them, after it to each GPU that needs it but one that is near *)
Definition moves (gpus : N) (u : unit_) (near : N) : N :=
  (if N.testbit near (start u mod gpus) then 0 else 1)
  + (members (needs u) - if N.land near (needs u) =? 0 then 0 else 1).

(** units with their rails *)
Definition placed_units : Type := list (unit_ * nat).
Definition over (f : unit_ -> nat -> N) (z : placed_units) : N := total (map (fun x => f (fst x) (snd x)) z).
Definition cost_of (gpus : N) (near : list N) (u : unit_) (n : nat) : N := weight u * moves gpus u (nth n near 0).
(** bytes at NIC [n] of node [k]; the key is [home gpus] or [into] *)
Definition at_nic (key : unit_ -> nat) (k n : nat) (u : unit_) (r : nat) : N :=
  if (key u =? k)%nat && (r =? n)%nat then weight u else 0.

Definition is_placed (R : nat) (us : list unit_) (z : placed_units) : Prop :=
  map fst z = us /\ Forall (fun x => (snd x < R)%nat) z.
Definition within_time (M R : nat) (gpus : N) (tx rx : list (list N)) (z : placed_units) (p : N) (q : positive) : Prop :=
  forall k n, (k < M)%nat -> (n < R)%nat ->
    Npos q * over (at_nic (home gpus) k n) z <= p * rate tx k n /\ Npos q * over (at_nic into k n) z <= p * rate rx k n.

(** every placement within the time p/q moves at least [b] bytes *)
Definition units_bounded (M R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) (p : N) (q : positive) (b : Q) : Prop :=
  forall z, is_placed R us z -> within_time M R gpus tx rx z p q -> (b <= inject_Z (Z.of_N (over (cost_of gpus near) z)))%Q.

Lemma over_cons f x z : over f (x :: z) = f (fst x) (snd x) + over f z.
Proof. reflexivity. Qed.

Lemma over_le f g z : (forall x, In x z -> f (fst x) (snd x) <= g (fst x) (snd x)) -> over f z <= over g z.
Proof. intros H. unfold over. now apply total_mono. Qed.

Lemma over_add f g z : over (fun u n => f u n + g u n) z = over f z + over g z.
Proof. induction z as [|x z IH]; [reflexivity|]. rewrite !over_cons, IH. lia. Qed.

Lemma over_mul c f z : over (fun u n => c * f u n) z = c * over f z.
Proof. induction z as [|x z IH]; [symmetry; apply N.mul_0_r|]. rewrite !over_cons, IH. lia. Qed.

(** *** What all units pay at a side is what its NICs are paid *)

Lemma nsum_zero n f : (forall i, (i < n)%nat -> f i = 0) -> nsum n f = 0.
Proof. intros H. induction n as [|n IH]; [reflexivity|]. rewrite nsum_S, IH, H by auto. reflexivity. Qed.

Lemma nsum_le n f g : (forall i, (i < n)%nat -> f i <= g i) -> nsum n f <= nsum n g.
Proof.
  intros H. induction n as [|n IH]; [reflexivity|]. rewrite !nsum_S. specialize (IH ltac:(auto)). specialize (H n ltac:(lia)). lia.
Qed.

Lemma nsum_scale n c f : nsum n (fun i => c * f i) = c * nsum n f.
Proof. induction n as [|n IH]; [symmetry; apply N.mul_0_r|]. rewrite !nsum_S, IH. lia. Qed.

Lemma paid_at_side (key : unit_ -> nat) (a : list (list N)) M R z :
  (forall x, In x z -> (key (fst x) < M)%nat /\ (snd x < R)%nat) ->
  over (fun u n => weight u * rate a (key u) n) z = nsum M (fun k => nsum R (fun n => rate a k n * over (at_nic key k n) z)).
Proof.
  induction z as [|[u r] z IH]; intros H.
  - symmetry. apply nsum_zero. intros k _. apply nsum_zero. intros n _. apply N.mul_0_r.
  - rewrite over_cons, IH by (intros; apply H; now right). cbn [fst snd].
    destruct (H (u, r) (or_introl eq_refl)) as [Hu Hr]. cbn [fst snd] in Hu, Hr.
    rewrite (nsum_ext M (fun k => nsum R (fun n => rate a k n * over (at_nic key k n) ((u, r) :: z)))
      (fun k => (if (key u =? k)%nat then weight u * rate a (key u) r else 0) + nsum R (fun n => rate a k n * over (at_nic key k n) z))).
    + rewrite nsum_add, nsum_one. apply Nat.ltb_lt in Hu. now rewrite Hu.
    + intros k _. rewrite (nsum_ext R _ (fun n => (if (r =? n)%nat then (if (key u =? k)%nat then weight u * rate a (key u) r else 0) else 0)
        + rate a k n * over (at_nic key k n) z)).
      * rewrite nsum_add, nsum_one. apply Nat.ltb_lt in Hr. now rewrite Hr.
      * intros n _. rewrite over_cons. cbn [fst snd]. unfold at_nic at 1.
        destruct (Nat.eqb_spec (key u) k) as [<-|], (Nat.eqb_spec r n) as [<-|]; cbn [andb]; lia.
Qed.

(** *** Prices *)

Definition priced (gpus : N) (near : list N) (a b : list (list N)) (unit : positive) (u : unit_) (n : nat) : N :=
  weight u * (Npos unit * moves gpus u (nth n near 0) + rate a (home gpus u) n + rate b (into u) n).

Definition live (gpus : N) (tx rx : list (list N)) (u : unit_) (n : nat) : bool :=
  (0 <? rate tx (home gpus u) n) && (0 <? rate rx (into u) n).

Definition sound_units (M : nat) (gpus : N) (us : list unit_) : bool :=
  forallb (fun u => (home gpus u <? M)%nat && (into u <? M)%nat && negb (home gpus u =? into u)%nat && (0 <? weight u)) us.

Lemma sound_unit M gpus us u : sound_units M gpus us = true -> In u us -> (home gpus u < M)%nat /\ (into u < M)%nat /\ 0 < weight u.
Proof.
  unfold sound_units. rewrite forallb_forall. intros H I. specialize (H u I). apply andb_prop in H. destruct H as [H W].
  apply andb_prop in H. destruct H as [H _]. apply andb_prop in H. destruct H as [A B].
  apply Nat.ltb_lt in A, B. apply N.ltb_lt in W. auto.
Qed.

Lemma over_in f x z : In x z -> f (fst x) (snd x) <= over f z.
Proof. induction z as [|y z IH]; [easy|]. rewrite over_cons. intros [->|H]; [lia|]. specialize (IH H). lia. Qed.

(** nothing with bytes is on a dead rail *)
Lemma placed_live M R gpus tx rx us z p q : sound_units M gpus us = true -> is_placed R us z -> within_time M R gpus tx rx z p q ->
  forall x, In x z -> live gpus tx rx (fst x) (snd x) = true.
Proof.
  intros S [E F] T x I. rewrite Forall_forall in F. specialize (F x I).
  assert (Iu : In (fst x) us) by (rewrite <- E; now apply in_map).
  destruct (sound_unit _ _ _ _ S Iu) as (Hk & Hf & W). unfold live. apply andb_true_intro. split; apply N.ltb_lt.
  - destruct (T (home gpus (fst x)) (snd x) Hk F) as [A _]. pose proof (over_in (at_nic (home gpus) (home gpus (fst x)) (snd x)) x z I) as O.
    unfold at_nic at 1 in O. rewrite !Nat.eqb_refl in O. cbn [andb] in O. destruct (N.eq_0_gt_0_cases (rate tx (home gpus (fst x)) (snd x))) as [Z|]; auto.
    rewrite Z, N.mul_0_r in A. apply N.le_0_r, N.mul_eq_0 in A. lia.
  - destruct (T (into (fst x)) (snd x) Hf F) as [_ A]. pose proof (over_in (at_nic into (into (fst x)) (snd x)) x z I) as O.
    unfold at_nic at 1 in O. rewrite !Nat.eqb_refl in O. cbn [andb] in O. destruct (N.eq_0_gt_0_cases (rate rx (into (fst x)) (snd x))) as [Z|]; auto.
    rewrite Z, N.mul_0_r in A. apply N.le_0_r, N.mul_eq_0 in A. lia.
Qed.

(** what all units pay, prices included, is what they move and what NICs earn in time *)
Lemma priced_le M R gpus tx rx near a b unit us z p q : sound_units M gpus us = true -> is_placed R us z ->
  within_time M R gpus tx rx z p q ->
  Npos q * over (priced gpus near a b unit) z <= Npos q * (Npos unit * over (cost_of gpus near) z) + p * earned M R tx rx a b.
Proof.
  intros S [E F] T.
  assert (B : forall x, In x z -> (home gpus (fst x) < M)%nat /\ (into (fst x) < M)%nat /\ (snd x < R)%nat).
  { intros x I. rewrite Forall_forall in F. assert (Iu : In (fst x) us) by (rewrite <- E; now apply in_map).
    destruct (sound_unit _ _ _ _ S Iu) as (? & ? & _). auto. }
  assert (Split : over (priced gpus near a b unit) z = Npos unit * over (cost_of gpus near) z
    + over (fun u n => weight u * rate a (home gpus u) n) z + over (fun u n => weight u * rate b (into u) n) z).
  { rewrite <- over_mul, <- !over_add. unfold over. f_equal. apply map_ext. intros x. unfold priced, cost_of. lia. }
  rewrite Split, (paid_at_side (home gpus) a M R), (paid_at_side into b M R) by (intros x I; destruct (B x I) as (? & ? & ?); auto).
  assert (Side : forall (c rates : list (list N)) (l : nat -> nat -> N), (forall k n, (k < M)%nat -> (n < R)%nat -> Npos q * l k n <= p * rate rates k n) ->
    Npos q * nsum M (fun k => nsum R (fun n => rate c k n * l k n)) <= p * nsum M (fun k => nsum R (fun n => rate c k n * rate rates k n))).
  { intros c rates l H. rewrite <- !nsum_scale. apply nsum_le. intros k Hk. rewrite <- !nsum_scale. apply nsum_le. intros n Hn.
    specialize (H k n Hk Hn). nia. }
  pose proof (Side a tx (fun k n => over (at_nic (home gpus) k n) z) (fun k n Hk Hn => proj1 (T k n Hk Hn))) as X.
  pose proof (Side b rx (fun k n => over (at_nic into k n) z) (fun k n Hk Hn => proj2 (T k n Hk Hn))) as Y.
  unfold earned. cbn beta in X, Y. lia.
Qed.

(** the rails of a unit, each with [f] of it *)
Definition rails_for {A} (R : nat) (gpus : N) (tx rx : list (list N)) (f : nat -> A) (u : unit_) : list A :=
  map f (filter (live gpus tx rx u) (seq 0 R)).
Definition smallest (l : list N) : option N := match l with [] => None | x :: l => Some (fold_left N.min l x) end.

Lemma smallest_le l m : smallest l = Some m -> forall x, In x l -> m <= x.
Proof.
  destruct l as [|y l]; [discriminate|]. cbn [smallest]. intros E. injection E as <-.
  assert (G : forall l y, fold_left N.min l y <= y /\ forall x, In x l -> fold_left N.min l y <= x).
  { clear. induction l as [|z l IH]; intros y; cbn [fold_left]; [split; [lia|easy]|]. destruct (IH (N.min y z)) as [A B]. split; [lia|].
    intros x [->|H]; [lia|now apply B]. }
  destruct (G l y) as [A B]. intros x [->|H]; auto.
Qed.

(** the least that each unit pays; [None] where one has no live rail *)
Definition least (R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (a b : list (list N)) (unit : positive) (u : unit_) : option N :=
  smallest (rails_for R gpus tx rx (priced gpus near a b unit u) u).
Definition paid_least (f : unit_ -> option N) (us : list unit_) : option N :=
  fold_left (fun s u => match s, f u with Some s, Some m => Some (s + m) | _, _ => None end) us (Some 0).

Lemma paid_least_none (f : unit_ -> option N) us : fold_left (fun s u => match s, f u with Some s, Some m => Some (s + m) | _, _ => None end) us None = None.
Proof. induction us as [|u us IH]; [reflexivity|]. exact IH. Qed.

Lemma paid_least_le (f : unit_ -> option N) g z : (forall x m, In x z -> f (fst x) = Some m -> m <= g (fst x) (snd x)) -> forall s v,
  fold_left (fun s u => match s, f u with Some s, Some m => Some (s + m) | _, _ => None end) (map fst z) (Some s) = Some v -> v <= s + over g z.
Proof.
  induction z as [|x z IH]; intros H s v E; cbn [map fold_left] in E.
  - injection E as <-. cbn. lia.
  - destruct (f (fst x)) as [m|] eqn:Fx; [|now rewrite paid_least_none in E].
    apply IH in E; [|intros; apply H; auto; now right]. pose proof (H x m (or_introl eq_refl) Fx). rewrite over_cons. lia.
Qed.

Definition check_moved_prices (M R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_)
    (a b : list (list N)) (unit : positive) (p : N) (q : positive) (bn : N) (bd : positive) : bool :=
  match paid_least (least R gpus tx rx near a b unit) us with
  | None => false
  | Some paid =>
      let e := p * earned M R tx rx a b in
      let each := Npos q * Npos unit in
      sound_units M gpus us && (e <? Npos q * paid + each)
      && (bn <=? Npos bd * ((Npos q * paid - e + (each - 1)) / each))
  end.

Lemma rail_listed M R gpus tx rx us z p q x : sound_units M gpus us = true -> is_placed R us z -> within_time M R gpus tx rx z p q ->
  In x z -> forall {A} (f : nat -> A), In (f (snd x)) (rails_for R gpus tx rx f (fst x)).
Proof.
  intros S P T I A f. unfold rails_for. apply in_map. apply filter_In. split.
  - destruct P as [_ F]. rewrite Forall_forall in F. apply in_seq. specialize (F x I). lia.
  - eapply placed_live; eauto.
Qed.

Theorem T14_moved_prices : forall M R gpus tx rx near us a b unit p q bn bd,
  check_moved_prices M R gpus tx rx near us a b unit p q bn bd = true ->
  units_bounded M R gpus tx rx near us p q (Z.of_N bn # bd).
Proof.
  unfold check_moved_prices. intros M R gpus tx rx near us a b unit p q bn bd H z P T.
  destruct (paid_least _ us) as [paid|] eqn:E; [|discriminate]. cbn zeta in H.
  apply andb_prop in H. destruct H as [H C]. apply andb_prop in H. destruct H as [S _]. apply N.leb_le in C.
  pose proof (priced_le M R gpus tx rx near a b unit us z p q S P T) as L.
  unfold paid_least in E. rewrite <- (proj1 P) in E.
  apply (paid_least_le _ (priced gpus near a b unit)) in E.
  2: { intros x m I Fx. eapply smallest_le; [exact Fx|].
       apply (rail_listed M R gpus tx rx us z p q x S P T I (priced gpus near a b unit (fst x))). }
  set (moved := over (cost_of gpus near) z) in *. set (e := p * earned M R tx rx a b) in *.
  set (each := Npos q * Npos unit) in *. assert (E0 : 0 < each) by (unfold each; lia).
  assert (Up : (Npos q * paid - e + (each - 1)) / each <= moved).
  { assert (X : Npos q * paid - e <= each * moved) by (unfold each; nia).
    assert (Y : (Npos q * paid - e + (each - 1)) / each <= (each * moved + (each - 1)) / each) by (apply N.div_le_mono; lia).
    replace (each * moved + (each - 1)) with (each - 1 + moved * each) in Y by lia.
    rewrite N.div_add, (N.div_small (each - 1)) in Y by lia. lia. }
  assert (Z : bn <= Npos bd * moved) by nia.
  unfold Qle, inject_Z. cbn [Qnum Qden]. apply N2Z.inj_le in Z. rewrite N2Z.inj_mul in Z. cbn [Z.of_N] in Z. lia.
Qed.

(** *** What a plan moves *)

Fixpoint moved_by (gpus : N) (near : list N) (us : list unit_) (rail : list nat) (sum : N) : N :=
  match us, rail with u :: us, n :: rail => moved_by gpus near us rail (sum + cost_of gpus near u n) | _, _ => sum end.

Lemma moved_by_spec gpus near us : forall rail sum, moved_by gpus near us rail sum = sum + over (cost_of gpus near) (combine us rail).
Proof.
  induction us as [|u us IH]; intros [|n rail] sum; cbn [moved_by combine]; try (cbn; lia). rewrite IH, over_cons. cbn [fst snd]. lia.
Qed.

(** placed within the time, and moves so many bytes *)
Definition units_move (M R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) (p : N) (q : positive)
    (rail : list nat) (v : Q) : Prop :=
  is_placed R us (combine us rail) /\ within_time M R gpus tx rx (combine us rail) p q /\
  (inject_Z (Z.of_N (over (cost_of gpus near) (combine us rail))) == v)%Q.

Definition check_moves (M R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) (p : N) (q : positive)
    (rail : list nat) (vn : N) (vd : positive) : bool :=
  let cs := map (chunk_of_unit gpus) us in
  let loads := both M R cs rail in
  sound_units M gpus us && same_length rail us && forallb (fun n => (n <? R)%nat) rail
  && none_later M R tx (fst loads) p q && none_later M R rx (snd loads) p q
  && (Npos vd * moved_by gpus near us rail 0 =? vn).

Lemma bytes_over gpus (key : chunk -> nat) (ukey : unit_ -> nat) us rail k n : (forall u, key (chunk_of_unit gpus u) = ukey u) ->
  bytes key (map (chunk_of_unit gpus) us) rail k n = over (at_nic ukey k n) (combine us rail).
Proof.
  intros E. unfold bytes. revert rail. induction us as [|u us IH]; intros [|r rail]; try reflexivity.
  cbn [map combine]. rewrite on_cons, over_cons. cbn [fst snd]. unfold at_nic at 1. rewrite <- IH.
  destruct (r =? n)%nat; cbn [app filter]; [rewrite E; destruct (ukey u =? k)%nat|rewrite andb_false_r]; reflexivity.
Qed.

Theorem T14_moves : forall M R gpus tx rx near us p q rail vn vd,
  check_moves M R gpus tx rx near us p q rail vn vd = true -> units_move M R gpus tx rx near us p q rail (Z.of_N vn # vd).
Proof.
  unfold check_moves. cbn zeta. unfold both. cbn [fst snd]. intros M R gpus tx rx near us p q rail vn vd H.
  apply andb_prop in H. destruct H as [H V]. apply andb_prop in H. destruct H as [H Tr]. apply andb_prop in H. destruct H as [H Ts].
  apply andb_prop in H. destruct H as [H HR]. apply andb_prop in H. destruct H as [S HL]. apply same_length_spec in HL.
  assert (F : Forall (fun r => (r < R)%nat) rail).
  { rewrite forallb_forall in HR. apply Forall_forall. intros r Hr. now apply Nat.ltb_lt, HR. }
  assert (B : forall c, In c (map (chunk_of_unit gpus) us) -> (src c < M)%nat /\ (dst c < M)%nat).
  { intros c I. apply in_map_iff in I. destruct I as (u & <- & I). destruct (sound_unit _ _ _ _ S I) as (? & ? & _). auto. }
  split; [|split].
  - split.
    + clear - HL. revert rail HL. induction us as [|u us IH]; intros [|r rail] HL; try discriminate; [reflexivity|].
      cbn [combine map fst]. f_equal. apply IH. cbn in HL. lia.
    + apply Forall_forall. intros [u r] I. rewrite Forall_forall in F. exact (F r (in_combine_r _ _ _ _ I)).
  - intros k n Hk Hn. rewrite <- (bytes_over gpus src (home gpus)), <- (bytes_over gpus dst into) by reflexivity. split.
    + pose proof (every_spec _ _ _ Ts k n Hk Hn) as E. cbn beta in E. apply N.leb_le in E.
      rewrite entry_carried in E; auto. intros c I. now apply B.
    + pose proof (every_spec _ _ _ Tr k n Hk Hn) as E. cbn beta in E. apply N.leb_le in E.
      rewrite entry_carried in E; auto. intros c I. now apply B.
  - apply N.eqb_eq in V. rewrite moved_by_spec, N.add_0_l in V. unfold Qeq, inject_Z. cbn [Qnum Qden].
    apply (f_equal Z.of_N) in V. rewrite N2Z.inj_mul in V. cbn [Z.of_N] in V. lia.
Qed.

(** ** The usual order of GPUs and NICs: as many NICs per GPU, or GPUs per NIC, as there are

    A plan that says nothing of its nodes means this order. *)
Definition usually_near (gpus rails g n : N) : bool :=
  let first := g * rails / gpus in (first <=? n) && (n <? N.max ((g + 1) * rails / gpus) (first + 1)).
Definition usual_set (gpus rails n : N) : N :=
  fold_left (fun s g => if usually_near gpus rails (N.of_nat g) n then N.setbit s (N.of_nat g) else s) (seq 0 (N.to_nat gpus)) 0.
Definition usual (gpus : N) (R : nat) : list N := map (fun n => usual_set gpus (N.of_nat R) (N.of_nat n)) (seq 0 R).

Lemma collected (f : N -> bool) l : forall s g,
  N.testbit (fold_left (fun s g => if f (N.of_nat g) then N.setbit s (N.of_nat g) else s) l s) g
  = N.testbit s g || (f g && existsb (fun x => g =? N.of_nat x) l).
Proof.
  induction l as [|x l IH]; intros s g; cbn [fold_left existsb]; [now rewrite andb_false_r, orb_false_r|].
  rewrite IH. destruct (N.eqb_spec g (N.of_nat x)) as [<-|D].
  - destruct (f g); cbn [andb orb]; [rewrite N.setbit_eq; now rewrite !orb_true_r|reflexivity].
  - destruct (f (N.of_nat x)); cbn [orb]; [rewrite N.setbit_neq by congruence|]; reflexivity.
Qed.

Theorem T14_usual : forall gpus R g n, g < gpus -> (n < R)%nat ->
  N.testbit (nth n (usual gpus R) 0) g = usually_near gpus (N.of_nat R) g (N.of_nat n).
Proof.
  intros gpus R g n Hg Hn. unfold usual.
  rewrite nth_indep with (d' := usual_set gpus (N.of_nat R) (N.of_nat 0)) by (now rewrite map_length, seq_length).
  rewrite (map_nth (fun n => usual_set gpus (N.of_nat R) (N.of_nat n))), seq_nth, Nat.add_0_l by assumption.
  unfold usual_set. rewrite (collected (fun g => usually_near gpus (N.of_nat R) g (N.of_nat n))), N.bits_0. cbn [orb].
  assert (E : existsb (fun x => g =? N.of_nat x) (seq 0 (N.to_nat gpus)) = true); [|now rewrite E, andb_true_r].
  apply existsb_exists. exists (N.to_nat g). split; [apply in_seq; lia|]. rewrite N2Nat.id. apply N.eqb_refl.
Qed.
