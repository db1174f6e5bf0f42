(** * The checker that is extracted: instances, what witnesses show of them, what solutions take

    [verdict] at the end is the program that [proofs/verified] compiles; what it accepts [holds].
    The order of lists, weights without a job, a capacity that is stated: such things are checked
    because [railopt/checker.py] checks them, and no proof needs them. *)
From Coq Require Import Arith NArith QArith Lia Lqa List Bool Permutation Mergesort Orders.
From Rails Require Import Hot Copies QSums Jobs Counting Weights Cover Certificate Fluid Joint Loads Units Staged.
From Rails Require Layer.
From Rails Require Capacity Fast Spare.
Import ListNotations.
Open Scope N_scope.

(** ** Jobs on the rails of one node *)

Inductive reason :=
| Mean (stated : option N)
| Pigeons (stated : option N) (jobs rails : N)
| Counts (stated : option N) (jobs : N)
| Weighs (stated : option N) (weights : list (N * N))
| Covers (stated : option N).

Definition nothing {A} (l : list A) : bool := match l with [] => true | _ => false end.
Definition size_of {A} (l : list A) : N := fold_left (fun n _ => n + 1) l 0.
Definition alike (live : list N) : bool := forallb (N.eqb (hd 0 live)) live.
Definition says (g : N) (stated : option N) (live : list N) : bool :=
  match stated with None => true | Some c => alike live && (c / g =? hd 0 live) end.

(** weights by size in units, the largest first *)
Module Heavy_order <: TotalLeBool.
  Definition t := (N * N)%type.
  Definition leb (x y : t) : bool := fst y <=? fst x.
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. unfold leb. destruct (N.leb_spec (fst y) (fst x)), (N.leb_spec (fst x) (fst y)); auto; lia. Qed.
End Heavy_order.
Module Heavy := Sort Heavy_order.

Definition table_of (g : N) (weights : list (N * N)) : list (N * N) :=
  Heavy.sort (map (fun e => (fst e / g, snd e)) weights).
Definition heavy (table : list (N * N)) : list (N * N) := filter (fun e => 0 <? snd e) table.

Fixpoint falling (table : list (N * N)) : bool :=
  match table with
  | e :: rest => match rest with f :: _ => (fst f <? fst e) && falling rest | [] => true end
  | [] => true
  end.
Fixpoint listed (table : list (N * N)) : list N -> bool :=
  match table with
  | [] => fun _ => true
  | e :: rest => fix skip ps := match ps with
      | [] => false
      | p :: more => if p =? fst e then listed rest ps else if fst e <? p then skip more else false
      end
  end.
(** every weight is of a size that occurs, and no size has two *)
Definition weighable (g : N) (weights : list (N * N)) (ps : list N) : bool :=
  let table := table_of g weights in
  negb (nothing weights) && forallb (fun e => fst e mod g =? 0) weights && falling table && listed table ps.

(** [live] are the capacities of live rails, [caps] of all (0 where dead), in units of [g] *)
Definition refutes (g : N) (w : reason) (live caps ps : list N) : bool :=
  match w with
  | Mean stated => says g stated live && by_average caps ps
  | Pigeons stated l k =>
      says g stated live && alike live && (1 <=? l) && (l <=? size_of ps) && (1 <=? k) && (k <=? size_of live)
      && (((hd 0 live =? 0) && by_average caps ps) || by_pigeonhole l k caps ps)
  | Counts stated j => says g stated live && (1 <=? j) && (j <=? size_of ps) && by_count j caps ps
  | Weighs stated weights =>
      says g stated live && weighable g weights ps && by_dual caps (attach ps (heavy (table_of g weights)))
  | Covers stated => says g stated live && by_cover caps ps
  end.

Lemma refutes_sound g w : forall live caps ps, refutes g w live caps ps = true -> refuted caps ps.
Proof.
  destruct w as [s|s l k|s j|s weights|s]; intros live caps ps H; cbn [refutes] in H;
    repeat match goal with H : _ && _ = true |- _ => apply andb_prop in H; destruct H end.
  - now apply T7_average_sound.
  - match goal with H : _ || _ = true |- _ => apply orb_prop in H; destruct H as [O|O] end.
    + apply andb_prop in O. destruct O as [_ O]. now apply T7_average_sound.
    + eapply T7_pigeonhole_sound; eauto.
  - eapply T7_count_sound; eauto.
  - rewrite <- (attach_sizes ps (heavy (table_of g weights))). now apply T7_dual_sound.
  - now apply T7_cover_sound.
Qed.

Definition fast_common (ps : list N) : N := fold_left N.gcd ps 0.

Lemma fast_common_spec ps : fast_common ps = common ps.
Proof. apply fold_symmetric; [intros; apply N.gcd_assoc|intros; apply N.gcd_comm]. Qed.

Definition check_jobs (w : reason) (speeds sizes : list N) (p : N) (q : positive) : bool :=
  let live := filter (N.ltb 0) speeds in
  let rooms := fun l => map (room p (Npos q)) l in
  forallb (N.ltb 0) sizes && (nothing sizes || negb (nothing live))
  && ((p =? 0) || let g := fast_common sizes in
      (0 <? g) && refutes g w (in_units g (rooms live)) (in_units g (rooms speeds)) (Descend.sort (in_units g sizes))).

Lemma check_jobs_refutes w speeds sizes p q : check_jobs w speeds sizes p q = true ->
  p = 0 \/ refuted (map (room p (Npos q)) speeds) sizes.
Proof.
  unfold check_jobs. cbn zeta. rewrite fast_common_spec. intros H. apply andb_prop in H. destruct H as [_ H].
  apply orb_prop in H. destruct H as [H|H]; [left; now apply N.eqb_eq|right].
  apply andb_prop in H. destruct H as [Hg H]. apply N.ltb_lt in Hg. apply refuted_units; [lia|].
  eapply refuted_perm; [apply Descend.Permuted_sort|]. eapply refutes_sound; eauto.
Qed.

Definition jobs_bounded (speeds sizes : list N) (b : Q) : Prop :=
  forall a t, (0 <= t)%Q -> placed (length speeds) sizes a -> finishes speeds sizes a t -> (b <= t)%Q.

Theorem T7_jobs : forall w speeds sizes p q, check_jobs w speeds sizes p q = true -> jobs_bounded speeds sizes (Z.of_N p # q).
Proof.
  intros w speeds sizes p q H a t Ht P F. apply check_jobs_refutes in H. destruct H as [->|H]; [now apply zero_then|].
  eapply T7_time; eauto.
Qed.

(** *** What an assignment takes *)

(** [P] of every number and its index, from [i] on *)
Fixpoint walk (P : N -> N -> bool) (i : N) (l : list N) : bool :=
  match l with [] => true | x :: l => P i x && walk P (i + 1) l end.
Fixpoint meets (P : N -> N -> bool) (i : N) (l : list N) : bool :=
  match l with [] => false | x :: l => P i x || meets P (i + 1) l end.

Lemma walk_spec P l : forall i, walk P i l = true -> forall r, (r < length l)%nat -> P (i + N.of_nat r) (nth r l 0) = true.
Proof.
  induction l as [|x l IH]; intros i H r Hr; simpl in Hr; [lia|]. simpl in H. apply andb_prop in H. destruct H as [A B].
  destruct r as [|r]; [now rewrite N.add_0_r|]. simpl nth. rewrite Nat2N.inj_succ.
  replace (i + N.succ (N.of_nat r)) with (i + 1 + N.of_nat r) by lia. apply IH; [exact B|lia].
Qed.

Lemma meets_spec P l : forall i, meets P i l = true -> exists r, (r < length l)%nat /\ P (i + N.of_nat r) (nth r l 0) = true.
Proof.
  induction l as [|x l IH]; intros i H; simpl in H; [discriminate|]. apply orb_prop in H. destruct H as [H|H].
  - exists O. rewrite N.add_0_r. split; [simpl; lia|exact H].
  - destruct (IH _ H) as (r & Hr & E). exists (S r). split; [simpl; lia|]. simpl nth. rewrite Nat2N.inj_succ.
    replace (i + N.succ (N.of_nat r)) with (i + 1 + N.of_nat r) by lia. exact E.
Qed.

Fixpoint piled (ps : list N) (a : list nat) (t : tree) : tree :=
  match ps, a with p :: ps, r :: a => piled ps a (add t (N.of_nat r) p) | _, _ => t end.

Lemma entry_piled R ps a r : (r < R)%nat -> Forall (fun r => (r < R)%nat) a ->
  entry (piled ps a (zeros (depth_of (N.of_nat R)))) (N.of_nat r) = load ps a r.
Proof.
  intros Hr F. assert (G : forall t, piled ps a t = gathered (fun z => N.of_nat (snd z)) fst (combine ps a) t).
  { clear F. revert a. induction ps as [|p ps IH]; intros [|n a] t; try reflexivity. apply IH. }
  rewrite G. pose proof (depth_enough (N.of_nat R)) as D. rewrite Forall_forall in F.
  rewrite (entry_gathered _ _ (depth_of (N.of_nat R))); [|apply zeros_depth|lia|].
  - rewrite entry_zeros, N.add_0_l. unfold load, on. f_equal. f_equal. apply filter_ext. intros [p n]. cbn [snd].
    destruct (N.eqb_spec (N.of_nat n) (N.of_nat r)), (Nat.eqb_spec n r); auto; lia.
  - intros [p n] I. cbn [snd]. specialize (F n (in_combine_r _ _ _ _ I)). lia.
Qed.

Definition check_assignment (speeds sizes : list N) (a : list nat) (p : N) (q : positive) : bool :=
  let R := length speeds in
  let t := piled sizes a (zeros (depth_of (N.of_nat R))) in
  same_length a sizes && forallb (fun r => (r <? R)%nat) a
  && walk (fun i v => Npos q * entry t i <=? p * v) 0 speeds
  && ((p =? 0) || meets (fun i v => (0 <? entry t i) && (Npos q * entry t i =? p * v)) 0 speeds).

Definition assignment_takes (speeds sizes : list N) (a : list nat) (time : Q) : Prop :=
  placed (length speeds) sizes a /\ finishes speeds sizes a time /\
  forall t, (0 <= t)%Q -> finishes speeds sizes a t -> (time <= t)%Q.

Theorem T7_assignment : forall speeds sizes a p q, check_assignment speeds sizes a p q = true ->
  assignment_takes speeds sizes a (Z.of_N p # q).
Proof.
  unfold check_assignment. cbn zeta. intros speeds sizes a p q H. apply andb_prop in H. destruct H as [H One].
  apply andb_prop in H. destruct H as [H W]. apply andb_prop in H. destruct H as [HL HR].
  assert (F : Forall (fun r => (r < length speeds)%nat) a).
  { rewrite forallb_forall in HR. apply Forall_forall. intros r Hr. now apply Nat.ltb_lt, HR. }
  split; [|split].
  - split; [now apply same_length_spec|exact F].
  - intros r Hr. pose proof (walk_spec _ _ _ W r Hr) as E. cbn beta in E. rewrite N.add_0_l, (entry_piled (length speeds)) in E by assumption.
    apply N.leb_le in E. now apply scaled_le.
  - intros t Ht Fi. apply orb_prop in One. destruct One as [One|One].
    + apply N.eqb_eq in One. subst p. now apply zero_then.
    + destruct (meets_spec _ _ _ One) as (r & Hr & E). cbn beta in E. rewrite N.add_0_l, (entry_piled (length speeds)) in E by assumption.
      apply andb_prop in E. destruct E as [E1 E2]. apply N.ltb_lt in E1. apply N.eqb_eq in E2.
      eapply exactly_then; eauto.
Qed.

(** ** Divisible traffic: prices, row by row *)

Definition shaped (M R : nat) (rows : list (list N)) : bool :=
  (length rows =? M)%nat && forallb (fun row => (length row =? R)%nat) rows.

Lemma shaped_row M R rows k : shaped M R rows = true -> (k < M)%nat -> length (nth k rows []) = R.
Proof.
  unfold shaped. intros H Hk. apply andb_prop in H. destruct H as [A B]. apply Nat.eqb_eq in A. rewrite forallb_forall in B.
  apply Nat.eqb_eq, B, nth_In. lia.
Qed.

(** the cheapest live rail: rates and prices of the sender, then of the receiver *)
Fixpoint cheap (t a r b : list N) : option N :=
  match t, a, r, b with
  | v :: t, x :: a, w :: r, y :: b =>
      let rest := cheap t a r b in
      if (0 <? v) && (0 <? w) then Some (match rest with Some m => N.min (x + y) m | None => x + y end) else rest
  | _, _, _, _ => None
  end.
Definition price (t a r b : list N) : N := match cheap t a r b with Some c => c | None => 0 end.

Lemma cheap_le t : forall a r b n, length a = length t -> length r = length t -> length b = length t -> (n < length t)%nat ->
  0 < nth n t 0 -> 0 < nth n r 0 -> exists c, cheap t a r b = Some c /\ c <= nth n a 0 + nth n b 0.
Proof.
  induction t as [|v t IH]; intros [|x a] [|w r] [|y b] n A R B Hn; simpl in A, R, B, Hn; try lia. cbn [cheap].
  destruct n as [|n]; cbn [nth]; intros Hv Hw.
  - apply N.ltb_lt in Hv, Hw. rewrite Hv, Hw. cbn [andb]. eexists. split; [reflexivity|]. destruct (cheap t a r b); lia.
  - destruct (IH a r b n ltac:(lia) ltac:(lia) ltac:(lia) ltac:(lia) Hv Hw) as (c & E & L). rewrite E.
    destruct ((0 <? v) && (0 <? w)); eexists; (split; [reflexivity|]); lia.
Qed.

(** what one sender's bytes cost at least, then all senders'; [None] where bytes have no live rail *)
Fixpoint row_cost (t a : list N) (rx b : list (list N)) (d : list N) (paid : N) : option N :=
  match rx, b, d with
  | r :: rx, y :: b, x :: d =>
      if x =? 0 then row_cost t a rx b d paid
      else match cheap t a r y with Some c => row_cost t a rx b d (paid + x * c) | None => None end
  | [], [], [] => Some paid
  | _, _, _ => None
  end.
Fixpoint all_cost (tx a rx b demand : list (list N)) (paid : N) : option N :=
  match tx, a, demand with
  | t :: tx, x :: a, d :: demand =>
      match row_cost t x rx b d paid with Some paid => all_cost tx a rx b demand paid | None => None end
  | [], [], [] => Some paid
  | _, _, _ => None
  end.

Lemma nsum_first n f : nsum (S n) f = f O + nsum n (fun i => f (S i)).
Proof. unfold nsum. cbn [seq map fold_right]. rewrite <- seq_shift, map_map. reflexivity. Qed.

Lemma row_cost_spec t a : forall rx b d paid v, row_cost t a rx b d paid = Some v ->
  v = paid + nsum (length d) (fun f => nth f d 0 * price t a (nth f rx []) (nth f b [])).
Proof.
  induction rx as [|r rx IH]; intros [|y b] [|x d] paid v H; cbn [row_cost] in H; try discriminate.
  - injection H as <-. cbn. lia.
  - cbn [length]. rewrite nsum_first. cbn [nth]. destruct (N.eqb_spec x 0) as [->|_].
    + rewrite (IH _ _ _ _ H). lia.
    + unfold price at 1. destruct (cheap t a r y) as [c|]; [|discriminate]. rewrite (IH _ _ _ _ H). lia.
Qed.

Lemma all_cost_spec rx b : forall tx a demand paid v, all_cost tx a rx b demand paid = Some v ->
  v = paid + nsum (length demand) (fun k => nsum (length (nth k demand []))
    (fun f => rate demand k f * price (nth k tx []) (nth k a []) (nth f rx []) (nth f b []))).
Proof.
  induction tx as [|t tx IH]; intros [|x a] [|d demand] paid v H; cbn [all_cost] in H; try discriminate.
  - injection H as <-. cbn. lia.
  - destruct (row_cost t x rx b d paid) as [w|] eqn:E; [|discriminate]. cbn [length]. rewrite nsum_first.
    rewrite (IH _ _ _ _ H), (row_cost_spec _ _ _ _ _ _ _ E). unfold rate. cbn [nth]. lia.
Qed.

Definition check_prices_of (M R : nat) (tx rx a b demand : list (list N)) (p : N) (q : positive) : bool :=
  let e := earned M R tx rx a b in
  shaped M R tx && shaped M R rx && shaped M R a && shaped M R b && shaped M M demand
  && ((p =? 0) || (0 <? e))
  && match all_cost tx a rx b demand 0 with Some c => p * e <=? Npos q * c | None => false end.

Definition bytes_bounded (M R : nat) (tx rx demand : list (list N)) (b : Q) : Prop :=
  forall x t, (0 <= t)%Q -> split M R (nq2 (rate demand)) x -> in_time M R (nq2 (rate tx)) (nq2 (rate rx)) x t -> (b <= t)%Q.

(** what all bytes cost is no more than what all NICs are paid, each for what it carries at most in a unit of time *)
Lemma paid M R tx rx a b demand c caps caps' x t : shaped M R tx = true -> shaped M R rx = true -> shaped M R a = true ->
  shaped M R b = true -> shaped M M demand = true -> all_cost tx a rx b demand 0 = Some c ->
  (forall k n, (k < M)%nat -> (n < R)%nat -> rate tx k n = 0 -> rate caps k n = 0) ->
  (forall k n, (k < M)%nat -> (n < R)%nat -> rate rx k n = 0 -> rate caps' k n = 0) ->
  split M R (nq2 (rate demand)) x -> in_time M R (nq2 (rate caps)) (nq2 (rate caps')) x t ->
  (nq c <= t * nq (earned M R caps caps' a b))%Q.
Proof.
  intros St Sr Sa Sb Sd E Dt Dr X T. apply all_cost_spec in E. rewrite N.add_0_l in E.
  set (pr := fun k f => price (nth k tx []) (nth k a []) (nth f rx []) (nth f b [])).
  assert (Ec : c = nsum M (fun k => nsum M (fun f => rate demand k f * pr k f))).
  { rewrite E. assert (L : length demand = M) by (unfold shaped in Sd; apply andb_prop in Sd; now apply Nat.eqb_eq).
    rewrite L. apply nsum_ext. intros k Hk. rewrite (shaped_row M M demand k Sd Hk). reflexivity. }
  pose proof (T7_prices M R (nq2 (rate caps)) (nq2 (rate caps')) (nq2 (rate demand)) (nq2 (rate a)) (nq2 (rate b)) (nq2 pr)) as W.
  rewrite Ec. unfold earned. rewrite nq_add, !nsum_q.
  rewrite (qsum_ext M (fun i => nq (nsum M _)) (fun k => qsum M (fun f => nq2 (rate demand) k f * nq2 pr k f)%Q)).
  2: { intros k _. rewrite nsum_q. apply qsum_ext. intros f _. unfold nq2. now rewrite nq_mul. }
  rewrite (qsum_ext M (fun k => nq (nsum R (fun n => rate a k n * rate caps k n)))
    (fun k => qsum R (fun n => nq2 (rate a) k n * nq2 (rate caps) k n)%Q)).
  2: { intros k _. rewrite nsum_q. apply qsum_ext. intros n _. unfold nq2. now rewrite nq_mul. }
  rewrite (qsum_ext M (fun f => nq (nsum R (fun n => rate b f n * rate caps' f n)))
    (fun f => qsum R (fun n => nq2 (rate b) f n * nq2 (rate caps') f n)%Q)).
  2: { intros k _. rewrite nsum_q. apply qsum_ext. intros n _. unfold nq2. now rewrite nq_mul. }
  apply W with (x := x); auto; try (intros; apply nq_nonneg).
  intros k f n Hk Hf Hn. unfold nq2.
  destruct (N.eq_0_gt_0_cases (rate tx k n)) as [Z|Ht]; [right; left; rewrite (Dt k n Hk Hn Z); reflexivity|].
  destruct (N.eq_0_gt_0_cases (rate rx f n)) as [Z|Hr]; [right; right; rewrite (Dr f n Hf Hn Z); reflexivity|].
  left. rewrite <- nq_add. apply nq_le. unfold pr, price.
  pose proof (shaped_row M R tx k St Hk) as Lt. pose proof (shaped_row M R a k Sa Hk) as La.
  pose proof (shaped_row M R rx f Sr Hf) as Lr. pose proof (shaped_row M R b f Sb Hf) as Lb.
  destruct (cheap_le (nth k tx []) (nth k a []) (nth f rx []) (nth f b []) n) as (m & -> & L); try (rewrite ?Lt; congruence || lia);
    [exact Ht|exact Hr|exact L].
Qed.

Theorem T7_priced : forall M R tx rx a b demand p q, check_prices_of M R tx rx a b demand p q = true ->
  bytes_bounded M R tx rx demand (Z.of_N p # q).
Proof.
  unfold check_prices_of. cbn zeta. intros M R tx rx a b demand p q H x t T0 X T.
  apply andb_prop in H. destruct H as [H C]. apply andb_prop in H. destruct H as [H He].
  apply andb_prop in H. destruct H as [H Sd]. apply andb_prop in H. destruct H as [H Sb].
  apply andb_prop in H. destruct H as [H Sa]. apply andb_prop in H. destruct H as [St Sr].
  apply orb_prop in He. destruct He as [He|He]; [apply N.eqb_eq in He; subst p; now apply zero_then|]. apply N.ltb_lt in He.
  destruct (all_cost tx a rx b demand 0) as [c|] eqn:E; [|discriminate]. apply N.leb_le in C.
  assert (W : (nq c <= t * nq (earned M R tx rx a b))%Q) by (eapply (paid M R tx rx a b demand c tx rx x t); eauto).
  apply nq_le in C. rewrite !nq_mul in C. apply nq_pos in He.
  assert (Eq : ((Z.of_N p # q) == nq p / nq (Npos q))%Q) by (unfold nq; rewrite Qmake_Qdiv; reflexivity).
  rewrite Eq. apply Qle_shift_div_r; [now apply nq_pos|].
  apply (Qmult_le_r _ _ (nq (earned M R tx rx a b))); [exact He|].
  eapply Qle_trans; [exact C|]. setoid_replace (t * nq (Npos q) * nq (earned M R tx rx a b))%Q with
    (nq (Npos q) * (t * nq (earned M R tx rx a b)))%Q by ring.
  rewrite !(Qmult_comm (nq (Npos q))). apply Qmult_le_compat_r; [exact W|apply nq_nonneg].
Qed.

(** ** Chunks between nodes *)

Definition chunks_bounded (M R : nat) (tx rx : list (list N)) (cs : list chunk) (b : Q) : Prop :=
  forall rail t, (0 <= t)%Q -> is_plan R cs rail -> on_time M R tx rx cs rail t -> (b <= t)%Q.

(** *** One node's side *)

Definition check_side (w : reason) (s : side) (k M R : nat) (tx rx : list (list N)) (cs : list chunk) (p : N) (q : positive) : bool :=
  let rates := nth k (match s with Send => tx | Receive => rx end) [] in
  (k <? M)%nat && (length rates =? R)%nat && check_jobs w rates (mine_reversed (key_of s) k cs) p q.

Lemma check_side_sound w s k M R tx rx cs p q : check_side w s k M R tx rx cs p q = true ->
  chunks_bounded M R tx rx cs (Z.of_N p # q).
Proof.
  unfold check_side. cbn zeta. intros H rail t Ht P T. apply andb_prop in H. destruct H as [H Hc].
  apply andb_prop in H. destruct H as [Hk HR]. apply Nat.ltb_lt in Hk. apply Nat.eqb_eq in HR.
  apply check_jobs_refutes in Hc. destruct Hc as [->|Hc]; [now apply zero_then|].
  eapply refuted_perm in Hc; [|symmetry; apply mine_reversed_perm].
  eapply (T7_time _ _ _ _ Hc (my_rails (key_of s) k cs rail)).
  - rewrite HR. now apply mine_placed.
  - intros n Hn. rewrite HR in Hn. rewrite mine_load. specialize (T k n Hk Hn). destruct s; simpl key_of; unfold rate in T; tauto.
Qed.

(** *** Several sides, the one with the least room to spare first: the order decides how soon ways end *)

Module Spare_order <: TotalLeBool.
  Definition t := (N * N * place)%type.     (* rooms, bytes, which side *)
  Definition leb (x y : t) : bool := fst (fst x) + snd (fst y) <=? fst (fst y) + snd (fst x).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. unfold leb. destruct (N.leb_spec (fst (fst x) + snd (fst y)) (fst (fst y) + snd (fst x))); [now left|right]. apply N.leb_le. lia. Qed.
End Spare_order.
Module Spare := Sort Spare_order.

Definition spare (g : N) (tx rx : list (list N)) (cs : list chunk) (p : N) (q : positive) (z : place) : N * N * place :=
  let rates := nth (snd z) (match fst z with Send => tx | Receive => rx end) [] in
  let most := total (mine_reversed (key_of (fst z)) (snd z) cs) / g in
  (total (map (fun v => N.min (room p (Npos q) v / g) most) rates), most, z).
Definition tightest_first (tx rx : list (list N)) (cs : list chunk) (p : N) (q : positive) (sides : list place) : list place :=
  map snd (Spare.sort (map (spare (fast_common (map size cs)) tx rx cs p q) sides)).
Definition sides_of (sends recvs : list nat) : list place :=
  map (fun k => (Send, k)) (nodup Nat.eq_dec sends) ++ map (fun k => (Receive, k)) (nodup Nat.eq_dec recvs).

(** *** Whole chunks are one way to divide bytes *)

Definition demands (M : nat) (cs : list chunk) : list (list N) :=
  let t := demanded M cs in map (fun k => map (fun f => entry t (nic M k f)) (seq 0 M)) (seq 0 M).

Lemma rate_demands M cs k f : (forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat) -> (k < M)%nat -> (f < M)%nat ->
  rate (demands M cs) k f = demand_of cs k f.
Proof.
  intros B Hk Hf. unfold rate, demands. cbn zeta. set (t := demanded M cs).
  rewrite (nth_indep _ [] ((fun k => map (fun f => entry t (nic M k f)) (seq 0 M)) O)) by (now rewrite map_length, seq_length).
  rewrite (map_nth (fun k => map (fun f => entry t (nic M k f)) (seq 0 M))), seq_nth by assumption.
  rewrite (nth_indep _ 0 ((fun f => entry t (nic M (0 + k) f)) O)) by (now rewrite map_length, seq_length).
  rewrite (map_nth (fun f => entry t (nic M (0 + k) f))), seq_nth by assumption. cbn [Nat.add].
  unfold t. rewrite entry_demanded by assumption. unfold demand_of. now rewrite total_tag.
Qed.

Definition parts (cs : list chunk) (rail : list nat) (k f n : nat) : N := total (map (tag (pair k f)) (on n cs rail)).

Lemma parts_split M R cs rail : (forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat) -> is_plan R cs rail ->
  (forall k f, (k < M)%nat -> (f < M)%nat -> nsum R (parts cs rail k f) = demand_of cs k f) /\
  (forall k n, (k < M)%nat -> nsum M (fun f => parts cs rail k f n) = bytes src cs rail k n) /\
  (forall f n, (f < M)%nat -> nsum M (fun k => parts cs rail k f n) = bytes dst cs rail f n).
Proof.
  intros B [L F].
  assert (Ms : Forall (fun c => src c < M)%nat cs) by (apply Forall_forall; intros c I; now apply B).
  assert (Md : Forall (fun c => dst c < M)%nat cs) by (apply Forall_forall; intros c I; now apply B).
  split; [|split].
  - intros k f _ _. exact (count_rails (tag (pair k f)) cs rail R L F).
  - intros k n _. unfold parts.
    rewrite (nsum_ext M _ (fun f => total (map (tag (fun c => (src c =? k)%nat && (dst c =? f)%nat)) (on n cs rail)))) by reflexivity.
    rewrite (by_other_end (fun c => (src c =? k)%nat) dst) by (now apply on_Forall). now rewrite total_tag.
  - intros f n _. unfold parts.
    rewrite (nsum_ext M _ (fun k => total (map (tag (fun c => (dst c =? f)%nat && (src c =? k)%nat)) (on n cs rail)))).
    + rewrite (by_other_end (fun c => (dst c =? f)%nat) src) by (now apply on_Forall). now rewrite total_tag.
    + intros k _. f_equal. apply map_ext. intros c. unfold tag, pair. now rewrite andb_comm.
Qed.

Definition check_chunk_prices (M R : nat) (tx rx a b : list (list N)) (cs : list chunk) (p : N) (q : positive) : bool :=
  in_range M cs && check_prices_of M R tx rx a b (demands M cs) p q.

Lemma check_chunk_prices_sound M R tx rx a b cs p q : check_chunk_prices M R tx rx a b cs p q = true ->
  chunks_bounded M R tx rx cs (Z.of_N p # q).
Proof.
  unfold check_chunk_prices. intros H rail t Ht P T. apply andb_prop in H. destruct H as [HM H].
  pose proof (in_range_spec M cs HM) as B. destruct (parts_split M R cs rail B P) as (A & S & D).
  apply (T7_priced _ _ _ _ _ _ _ _ _ H (fun k f n => nq (parts cs rail k f n)) t Ht); split.
  - intros. apply nq_nonneg.
  - intros k f Hk Hf. rewrite <- nsum_q, (A k f Hk Hf). unfold nq2. now rewrite rate_demands.
  - intros k n Hk Hn. rewrite <- nsum_q, (S k n Hk). apply (T k n Hk Hn).
  - intros f n Hf Hn. rewrite <- nsum_q, (D f n Hf). apply (T f n Hf Hn).
Qed.

(** *** Whole chunks: before a time a NIC carries a sum of some of its chunks, those that are live at both ends *)

Definition far_of (s : side) : chunk -> nat := match s with Send => dst | Receive => src end.

(** the largest sum of [ps] within [room]; sums of more bits than [most_bits] are not looked for *)
Definition held (room : N) (ps : list N) : N :=
  let most := N.min room (total ps) in
  if most <=? most_bits then fullest (bits most ps) most else most.

Definition rooms_of (g : N) (rates : list (list N)) (p : N) (q : positive) : list (list N) :=
  map (map (fun v => room p (Npos q) v / g)) rates.
Definition far_holds (s : side) (others : list (list N)) (n : nat) (c : chunk) : bool := 0 <? rate others (far_of s c) n.
Definition units_for (s : side) (g : N) (cs : list chunk) (f : nat) : list N :=
  in_units g (map size (filter (fun c => (far_of s c =? f)%nat) cs)).

(** rooms and others' rooms in units: a NIC holds sums of its node's chunks, and of each far end what both can *)
Definition held_by (s : side) (M R : nat) (g : N) (rooms others : list (list N)) (cs : list chunk) : list (list N) :=
  map (fun k =>
    let own := filter (fun c => (key_of s c =? k)%nat) cs in
    let apart := map (fun f => (f, units_for s g own f)) (seq 0 M) in
    map (fun n =>
      let room := rate rooms k n in
      g * N.min (held room (in_units g (map size (filter (far_holds s others n) own))))
        (total (map (fun z => held (N.min room (rate others (fst z) n)) (snd z)) apart))) (seq 0 R)) (seq 0 M).

Definition check_whole (M R : nat) (tx rx a b : list (list N)) (cs : list chunk) (p : N) (q : positive) : bool :=
  let g := fast_common (map size cs) in
  let sent := rooms_of g tx p q in
  let received := rooms_of g rx p q in
  let e := earned M R (held_by Send M R g sent received cs) (held_by Receive M R g received sent cs) a b in
  let demand := demands M cs in
  shaped M R tx && shaped M R rx && shaped M R a && shaped M R b && shaped M M demand && in_range M cs
  && (0 <? g)
  && match all_cost tx a rx b demand 0 with Some c => e <? c | None => false end.

Lemma rate_table M R (F : nat -> nat -> N) k n : (k < M)%nat -> (n < R)%nat ->
  rate (map (fun k => map (F k) (seq 0 R)) (seq 0 M)) k n = F k n.
Proof.
  intros Hk Hn. unfold rate.
  rewrite (nth_indep _ [] ((fun k => map (F k) (seq 0 R)) O)) by (now rewrite map_length, seq_length).
  rewrite (map_nth (fun k => map (F k) (seq 0 R))), seq_nth by assumption. cbn [Nat.add].
  rewrite (nth_indep _ 0 (F k O)) by (now rewrite map_length, seq_length).
  rewrite (map_nth (F k)), seq_nth by assumption. reflexivity.
Qed.

Lemma sub_filter {A} (P : A -> bool) t l : sub t l -> sub (filter P t) (filter P l).
Proof. induction 1; simpl; [constructor|destruct (P x); [now constructor|assumption]|destruct (P x); [now constructor|assumption]]. Qed.
Lemma sub_filtered {A} (P : A -> bool) l : sub (filter P l) l.
Proof. induction l as [|x l IH]; simpl; [constructor|destruct (P x); now constructor]. Qed.
Lemma sub_map {A B} (f : A -> B) t l : sub t l -> sub (map f t) (map f l).
Proof. induction 1; simpl; now constructor. Qed.
Lemma sub_total t l : sub t l -> total t <= total l.
Proof. induction 1; rewrite ?total_cons; lia. Qed.

Lemma held_ge room t ps : sub t ps -> total t <= room -> total t <= held room ps.
Proof.
  intros S Hr. unfold held. cbn zeta.
  assert (Hm : total t <= N.min room (total ps)) by (apply N.min_glb; [exact Hr|now apply sub_total]).
  destruct (_ <=? most_bits); [|exact Hm]. apply fullest_ge; [|exact Hm]. now apply bits_sound.
Qed.

Lemma held_zero ps : held 0 ps = 0.
Proof.
  unfold held. cbn zeta. rewrite N.min_0_l. destruct (0 <=? most_bits); [|reflexivity]. unfold fullest.
  apply N.le_0_r. apply N.le_trans with (N.log2 (N.ones (0 + 1))); [|reflexivity]. apply N.log2_le_mono.
  change (N.ones (0 + 1)) with (N.ones 1). rewrite N.land_ones. pose proof (N.mod_upper_bound (bits 0 ps) (2 ^ 1)).
  change (N.ones 1) with 1. change (2 ^ 1) with 2 in *. lia.
Qed.

Lemma rate_rooms M R g rates p q k n : shaped M R rates = true -> (k < M)%nat -> (n < R)%nat ->
  rate (rooms_of g rates p q) k n = room p (Npos q) (rate rates k n) / g.
Proof.
  intros Sh Hk Hn. pose proof (shaped_row M R rates k Sh Hk) as L. unfold rate, rooms_of.
  assert (Lk : length rates = M) by (unfold shaped in Sh; apply andb_prop in Sh; now apply Nat.eqb_eq).
  rewrite (nth_indep _ [] (map (fun v => room p (Npos q) v / g) [])) by (rewrite map_length; lia).
  rewrite map_nth. rewrite (nth_indep _ 0 ((fun v => room p (Npos q) v / g) 0)) by (rewrite map_length; lia).
  now rewrite (map_nth (fun v => room p (Npos q) v / g)).
Qed.

(** chunks without bytes apart, those on a rail are live there at both ends *)
Lemma only_live (P : chunk -> bool) l : (forall c, In c l -> P c = false -> size c = 0) ->
  total (map size (filter P l)) = total (map size l).
Proof.
  induction l as [|c l IH]; intros H; [reflexivity|]. specialize (IH (fun d I => H d (or_intror I))). cbn [filter].
  destruct (P c) eqn:E; cbn [map]; rewrite ?total_cons, IH, ?total_cons; [reflexivity|].
  rewrite (H c (or_introl eq_refl) E). reflexivity.
Qed.

Lemma single_le c l : In c l -> size c <= total (map size l).
Proof. induction l as [|d l IH]; [easy|]. simpl map. rewrite total_cons. intros [->|I]; [lia|]. specialize (IH I). lia. Qed.

(** bytes on a rail, those of each far end apart *)
Lemma by_far s M (l : list chunk) : (forall c, In c l -> (far_of s c < M)%nat) ->
  total (map size l) = total (map (fun f => total (map size (filter (fun c => (far_of s c =? f)%nat) l))) (seq 0 M)).
Proof.
  intros H. pose proof (by_other_end (fun _ => true) (far_of s) M l) as E. cbn [andb] in E. unfold nsum in E.
  rewrite (map_ext (fun f => total (map (tag (fun c => (far_of s c =? f)%nat)) l))
    (fun f => total (map size (filter (fun c => (far_of s c =? f)%nat) l)))) in E by (intros f; apply total_tag).
  fold (total (map (fun f => total (map size (filter (fun c => (far_of s c =? f)%nat) l))) (seq 0 M))) in E.
  rewrite E by (now apply Forall_forall). rewrite total_tag. f_equal. f_equal.
  clear. induction l as [|c l IH]; [reflexivity|]. simpl. now rewrite <- IH.
Qed.

Lemma held_by_ge s M R rates others cs rail p q t k n : fast_common (map size cs) <> 0 ->
  shaped M R rates = true -> shaped M R others = true ->
  (forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat) -> is_plan R cs rail -> (t < Z.of_N p # q)%Q ->
  (forall k n, (k < M)%nat -> (n < R)%nat -> (nq (bytes (key_of s) cs rail k n) <= t * nq (rate rates k n))%Q) ->
  (forall k n, (k < M)%nat -> (n < R)%nat -> (nq (bytes (far_of s) cs rail k n) <= t * nq (rate others k n))%Q) ->
  (k < M)%nat -> (n < R)%nat -> let g := fast_common (map size cs) in
  bytes (key_of s) cs rail k n <= rate (held_by s M R g (rooms_of g rates p q) (rooms_of g others p q) cs) k n.
Proof.
  intros Hg Sh Sh' B P Ht Own Far Hk Hn g. fold g in Hg. unfold held_by. cbn zeta.
  rewrite rate_table by assumption. rewrite (rate_rooms M R g rates p q k n Sh Hk Hn).
  pose proof (before_room p q t (rate rates k n) _ Ht (Own k n Hk Hn)) as Hr.
  unfold bytes in *. set (on_rail := on n cs rail) in *. set (l := filter (fun c => (key_of s c =? k)%nat) on_rail) in *.
  assert (In_l : forall c, In c l -> In c on_rail) by (intros c I; apply filter_In in I; tauto).
  assert (In_cs : forall c, In c l -> In c cs) by (intros c I; apply (on_In n cs rail), In_l, I).
  assert (Bf : forall c, In c l -> (far_of s c < M)%nat) by (intros c I; specialize (B c (In_cs c I)); destruct s; simpl; tauto).
  assert (Div : forall L, (forall c, In c L -> In c l) -> total (map size L) = g * total (in_units g (map size L))).
  { intros L HL. apply total_units; [exact Hg|]. intros x I. apply in_map_iff in I. destruct I as (c & <- & I).
    unfold g. rewrite fast_common_spec. apply common_divides, in_map. now apply In_cs, HL. }
  assert (Sub : sub l (filter (fun c => (key_of s c =? k)%nat) cs)) by (apply sub_filter, on_sub; now destruct P).
  (* what is on the rail for one far end fits into that one's room *)
  assert (Fr : forall f, (f < M)%nat ->
    total (map size (filter (fun c => (far_of s c =? f)%nat) l)) <= room p (Npos q) (rate others f n)).
  { intros f Hf. eapply N.le_trans; [|exact (before_room p q t (rate others f n) _ Ht (Far f n Hf Hn))].
    apply sub_total, sub_map, sub_filter, sub_filtered. }
  rewrite (Div l (fun c I => I)). apply N.mul_le_mono_l. apply N.min_glb.
  - assert (Z : total (map size (filter (far_holds s (rooms_of g others p q) n) l)) = total (map size l)).
    { apply only_live. intros c I E. unfold far_holds in E. apply N.ltb_ge in E. specialize (Bf c I).
      rewrite (rate_rooms M R g others p q _ n Sh' Bf Hn) in E. apply N.le_0_r in E.
      specialize (Fr (far_of s c) Bf).
      assert (L : size c <= room p (Npos q) (rate others (far_of s c) n)).
      { eapply N.le_trans; [|exact Fr]. apply single_le, filter_In. split; [exact I|apply Nat.eqb_refl]. }
      assert (D : (g | size c)) by (unfold g; rewrite fast_common_spec; apply common_divides, in_map; auto).
      destruct D as [m Hm]. rewrite Hm in *. assert (m <= 0); [|nia]. rewrite <- E. apply N.div_le_lower_bound; lia. }
    assert (U : total (in_units g (map size l)) = total (in_units g (map size (filter (far_holds s (rooms_of g others p q) n) l)))).
    { apply (N.mul_cancel_l _ _ g Hg). rewrite <- !Div; auto. intros c I. apply filter_In in I. tauto. }
    rewrite U. apply held_ge; [unfold in_units; now apply sub_map, sub_map, sub_filter|].
    rewrite <- U. apply N.div_le_lower_bound; [exact Hg|]. rewrite <- Div; auto.
  - assert (U : total (in_units g (map size l)) =
      total (map (fun f => total (in_units g (map size (filter (fun c => (far_of s c =? f)%nat) l)))) (seq 0 M))).
    { apply (N.mul_cancel_l _ _ g Hg). rewrite <- Div by auto. rewrite (by_far s M l Bf).
      induction (seq 0 M) as [|f fs IH]; [simpl; lia|]. cbn [map]. rewrite !total_cons, IH, N.mul_add_distr_l. f_equal.
      apply Div. intros c I. apply filter_In in I. tauto. }
    rewrite U, map_map. cbn [fst snd]. apply total_mono. intros f I. apply in_seq in I. assert (Hf : (f < M)%nat) by lia.
    unfold units_for. apply held_ge; [unfold in_units; now apply sub_map, sub_map, sub_filter|].
    rewrite (rate_rooms M R g others p q f n Sh' Hf Hn).
    assert (Df : total (map size (filter (fun c => (far_of s c =? f)%nat) l)) =
      g * total (in_units g (map size (filter (fun c => (far_of s c =? f)%nat) l)))).
    { apply Div. intros c J. apply filter_In in J. tauto. }
    apply N.min_glb; apply N.div_le_lower_bound; try exact Hg; rewrite <- Df; [|now apply Fr].
    eapply N.le_trans; [|exact Hr]. apply sub_total, sub_map, sub_filtered.
Qed.

Theorem T7_whole : forall M R tx rx a b cs p q, check_whole M R tx rx a b cs p q = true ->
  forall rail t, is_plan R cs rail -> on_time M R tx rx cs rail t -> ((Z.of_N p # q) <= t)%Q.
Proof.
  unfold check_whole. cbn zeta. intros M R tx rx a b cs p q H rail t P T.
  apply andb_prop in H. destruct H as [H C]. apply andb_prop in H. destruct H as [H Hg]. apply N.ltb_lt in Hg.
  apply andb_prop in H. destruct H as [H HM]. apply andb_prop in H. destruct H as [H Sd]. apply andb_prop in H. destruct H as [H Sb].
  apply andb_prop in H. destruct H as [H Sa]. apply andb_prop in H. destruct H as [St Sr].
  destruct (all_cost tx a rx b (demands M cs) 0) as [c|] eqn:E; [|discriminate]. apply N.ltb_lt in C.
  destruct (Qlt_le_dec t (Z.of_N p # q)) as [Ht|]; auto. exfalso.
  pose proof (in_range_spec M cs HM) as B. destruct (parts_split M R cs rail B P) as (A & S & D).
  assert (G : fast_common (map size cs) <> 0) by lia.
  set (g := fast_common (map size cs)) in *.
  assert (Zero : forall s rates others k n, shaped M R rates = true -> (k < M)%nat -> (n < R)%nat -> rate rates k n = 0 ->
    rate (held_by s M R g (rooms_of g rates p q) others cs) k n = 0).
  { intros s rates others k n Sh Hk Hn Z. unfold held_by. cbn zeta. rewrite rate_table by assumption.
    rewrite (rate_rooms M R g rates p q k n Sh Hk Hn), Z.
    assert (R0 : room p (Npos q) 0 = 0) by (unfold room; rewrite N.mul_0_r; reflexivity).
    now rewrite R0, N.div_0_l, held_zero, N.min_0_l, N.mul_0_r. }
  assert (W : (nq c <= 1 * nq (earned M R (held_by Send M R g (rooms_of g tx p q) (rooms_of g rx p q) cs)
    (held_by Receive M R g (rooms_of g rx p q) (rooms_of g tx p q) cs) a b))%Q).
  { eapply (paid M R tx rx a b (demands M cs) c _ _ (fun k f n => nq (parts cs rail k f n)) 1%Q); eauto; split.
    - intros. apply nq_nonneg.
    - intros k f Hk Hf. rewrite <- nsum_q, (A k f Hk Hf). unfold nq2. now rewrite rate_demands.
    - intros k n Hk Hn. rewrite <- nsum_q, (S k n Hk), Qmult_1_l. unfold nq2. apply nq_le.
      apply (held_by_ge Send M R tx rx cs rail p q t k n); auto; intros; now apply T.
    - intros f n Hf Hn. rewrite <- nsum_q, (D f n Hf), Qmult_1_l. unfold nq2. apply nq_le.
      apply (held_by_ge Receive M R rx tx cs rail p q t f n); auto; intros; now apply T. }
  rewrite Qmult_1_l in W. unfold nq, Qle, inject_Z in W. simpl in W. lia.
Qed.

(** *** A flow: amounts in bytes times [unit], each on a rail *)

Fixpoint flat_walk (P : N -> N -> bool) (i : N) (rows : list (list N)) : bool :=
  match rows with [] => true | row :: rows => walk P i row && flat_walk P (i + N.of_nat (length row)) rows end.

Lemma flat_walk_spec P R : forall rows i, flat_walk P i rows = true -> forallb (fun row => (length row =? R)%nat) rows = true ->
  forall k n, (k < length rows)%nat -> (n < R)%nat -> P (i + nic R k n) (rate rows k n) = true.
Proof.
  induction rows as [|row rows IH]; intros i H L k n Hk Hn; simpl in Hk; [lia|].
  cbn [flat_walk] in H. apply andb_prop in H. destruct H as [W H]. cbn [forallb] in L. apply andb_prop in L. destruct L as [E L].
  apply Nat.eqb_eq in E. destruct k as [|k].
  - unfold nic, rate. cbn [nth]. pose proof (walk_spec _ _ _ W n ltac:(lia)) as Z. now rewrite N.mul_0_l, N.add_0_l.
  - unfold rate. cbn [nth]. fold (rate rows k n). rewrite E in H.
    replace (i + nic R (S k) n) with (i + N.of_nat R + nic R k n) by (unfold nic; lia). apply IH; auto. lia.
Qed.

Definition check_division (M R : nat) (tx rx demand : list (list N)) (unit : positive) (cs : list chunk) (rail : list nat)
    (p : N) (q : positive) : bool :=
  let t := demanded M cs in
  shaped M M demand && flat_walk (fun i d => entry t i =? Npos unit * d) 0 demand
  && check_takes M R tx rx cs rail (Npos unit * p) q.

Definition bytes_done (M R : nat) (tx rx demand : list (list N)) (time : Q) : Prop :=
  exists x, split M R (nq2 (rate demand)) x /\ in_time M R (nq2 (rate tx)) (nq2 (rate rx)) x time.

Lemma check_division_takes M R tx rx demand unit cs rail p q : check_division M R tx rx demand unit cs rail p q = true ->
  exists t, (t == nq (Npos unit) * (Z.of_N p # q))%Q /\ takes M R tx rx cs rail t.
Proof.
  unfold check_division. cbn zeta. intros H. apply andb_prop in H. destruct H as [_ H].
  exists (Z.of_N (Npos unit * p) # q). split; [|now apply T7_takes].
  unfold nq, Qeq, Qmult, inject_Z. rewrite N2Z.inj_mul. cbn [Qnum Qden]. rewrite Pos.mul_1_l. reflexivity.
Qed.

Theorem T7_division : forall M R tx rx demand unit cs rail p q,
  check_division M R tx rx demand unit cs rail p q = true -> bytes_done M R tx rx demand (Z.of_N p # q).
Proof.
  unfold check_division. cbn zeta. intros M R tx rx demand unit cs rail p q H.
  apply andb_prop in H. destruct H as [H T]. apply andb_prop in H. destruct H as [Sh W].
  assert (B : forall c, In c cs -> (src c < M)%nat /\ (dst c < M)%nat).
  { unfold check_takes in T. repeat (apply andb_prop in T; destruct T as [T ?]). now apply in_range_spec. }
  destruct (T7_takes _ _ _ _ _ _ _ _ T) as (P & On & _). destruct (parts_split M R cs rail B P) as (A & S & D).
  assert (U : (0 < nq (Npos unit))%Q) by (now apply nq_pos).
  assert (Un : ~ (nq (Npos unit) == 0)%Q) by (intros Z; rewrite Z in U; now apply Qlt_irrefl in U).
  assert (Sum : forall m g, (qsum m (fun i => nq (g i) / nq (Npos unit)) == nq (nsum m g) / nq (Npos unit))%Q).
  { intros m g. rewrite nsum_q. unfold Qdiv. rewrite (Qmult_comm (qsum _ _)), <- qsum_mul. apply qsum_ext. intros. ring. }
  assert (Tm : ((Z.of_N (Npos unit * p) # q) == nq (Npos unit) * (Z.of_N p # q))%Q).
  { unfold nq, Qeq, Qmult, inject_Z. rewrite N2Z.inj_mul. cbn [Qnum Qden]. rewrite Pos.mul_1_l. reflexivity. }
  exists (fun k f n => (nq (parts cs rail k f n) / nq (Npos unit))%Q). split; split.
  - intros k f n _ _ _. apply Qle_shift_div_l; [exact U|]. rewrite Qmult_0_l. apply nq_nonneg.
  - intros k f Hk Hf. rewrite Sum, (A k f Hk Hf). unfold shaped in Sh. apply andb_prop in Sh. destruct Sh as [L Rw].
    apply Nat.eqb_eq in L. pose proof (flat_walk_spec _ M _ _ W Rw k f ltac:(lia) Hf) as E. cbn beta in E.
    apply N.eqb_eq in E. rewrite N.add_0_l, entry_demanded in E by assumption. unfold demand_of. rewrite total_tag.
    change (pair k f) with (fun c => (src c =? k)%nat && (dst c =? f)%nat). rewrite E. unfold nq2. rewrite nq_mul. field. exact Un.
  - intros k n Hk Hn. rewrite (Sum M (fun f => parts cs rail k f n)), (S k n Hk). destruct (On k n Hk Hn) as [X _].
    apply Qle_shift_div_r; [exact U|]. rewrite Tm in X. unfold nq2. unfold nq in *. lra.
  - intros f n Hf Hn. rewrite (Sum M (fun k => parts cs rail k f n)), (D f n Hf). destruct (On f n Hf Hn) as [_ X].
    apply Qle_shift_div_r; [exact U|]. rewrite Tm in X. unfold nq2. unfold nq in *. lra.
Qed.

(** ** Copies in spare slots: experts of a room once, those with most tokens first *)

Module Most_order <: TotalLeBool.
  Definition t := (N * N)%type.     (* tokens, expert *)
  Definition leb (x y : t) : bool := (fst y <? fst x) || ((fst x =? fst y) && (snd x <=? snd y)).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof.
    intros x y. unfold leb. destruct (N.ltb_spec (fst y) (fst x)), (N.ltb_spec (fst x) (fst y)), (N.eqb_spec (fst x) (fst y)),
      (N.eqb_spec (fst y) (fst x)), (N.leb_spec (snd x) (snd y)), (N.leb_spec (snd y) (snd x)); auto; lia.
  Qed.
End Most_order.
Module Most := Sort Most_order.

Fixpoint each_once (l : list (N * N)) : list (N * N) :=
  match l with
  | x :: rest => match rest with y :: _ => if snd x =? snd y then each_once rest else x :: each_once rest | [] => l end
  | [] => []
  end.
Definition room_of (counts : tree) (es : list nat) : list nat :=
  map (fun z => N.to_nat (snd z)) (each_once (Most.sort (map (fun e => (entry counts (N.of_nat e), N.of_nat e)) es))).
Fixpoint largest_first (counts : tree) (w : copies) : copies :=
  match w with
  | Rails.Spare.Room es => Rails.Spare.Room (room_of counts es)
  | Rails.Spare.Cases e r w1 w2 => Rails.Spare.Cases e r (largest_first counts w1) (largest_first counts w2)
  end.

(** ** Certificates *)

Definition frac : Type := N * positive.
Definition time_of (x : frac) : Q := Z.of_N (fst x) # snd x.
Definition no_more (x y : frac) : bool := fst x * Npos (snd y) <=? fst y * Npos (snd x).
Definition equal (x y : frac) : bool := fst x * Npos (snd y) =? fst y * Npos (snd x).

Lemma equal_time x y : equal x y = true -> (time_of x == time_of y)%Q.
Proof.
  unfold equal, time_of, Qeq. cbn [Qnum Qden]. intros H. apply N.eqb_eq in H.
  apply (f_equal Z.of_N) in H. rewrite !N2Z.inj_mul in H. exact H.
Qed.

(** bytes for the own node do not travel *)
Fixpoint blank (k : nat) (row : list N) : list N :=
  match row, k with [], _ => [] | _ :: row, O => 0 :: row | x :: row, S k => x :: blank k row end.
Fixpoint blanked (k : nat) (rows : list (list N)) : list (list N) :=
  match rows with [] => [] | row :: rows => blank k row :: blanked (S k) rows end.

Fixpoint same {A} (eqb : A -> A -> bool) (l m : list A) : bool :=
  match l, m with [], [] => true | x :: l, y :: m => eqb x y && same eqb l m | _, _ => false end.
Definition same_rates : list (list N) -> list (list N) -> bool := same (same N.eqb).

Inductive instance :=
| Jobs_on (speeds sizes : list N)
| Chunks_between (M R : nat) (tx rx : list (list N)) (cs : list chunk)
| Bytes_between (M R : nat) (tx rx demand : list (list N))
| Units_between (M R : nat) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) (within : frac)
| Stages_of (n : nat) (demand : list (list N))
| Tokens_on (counts holds spare : list N) (node : option (list N))
| Layer_on (tokens held : list (list N)) (slots tx rx : list N) (bytes : N).

Inductive evidence :=
| Of_jobs (w : reason)
| Of_side (s : side) (k : nat) (w : reason)
| Of_sides (sends recvs : list nat)
| Of_prices (send recv : list (list N))
| Of_whole (send recv : list (list N))
| Of_moves (unit : positive) (send recv : list (list N))
| Of_line (s : side) (k : nat)
| Of_slots (w : copies)
| Of_node_prices (recv send slot : list N).

(** what a plan file says of its nodes: how many GPUs each has, of each rail those near it unless they are in the usual
    order, and its chunks as units of GPUs *)
Record inner := Inner { inner_gpus : N; inner_near : option (list N); inner_units : list unit_ }.
Definition near_in (R : nat) (i : inner) : list N := match inner_near i with Some near => near | None => usual (inner_gpus i) R end.

(** a plan file: rates, chunks, rails, and what it says of itself; of its nodes, where that is asked for *)
Record file := File { file_tx : list (list N); file_rx : list (list N); file_chunks : list chunk; file_rail : list nat;
  file_time : frac; file_send : list N; file_recv : list N; file_inner : option inner }.

(** the units, their GPUs and the fabric are those of the file *)
Definition units_in (R : nat) (f : file) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) : Prop :=
  tx = file_tx f /\ rx = file_rx f /\ map (chunk_of_unit gpus) us = file_chunks f /\
  exists i, file_inner f = Some i /\ gpus = inner_gpus i /\ near = near_in R i /\ us = inner_units i.

Inductive solution :=
| Rails (rail : list nat)
| In_file (f : file)
| Divided (unit : positive) (cs : list chunk) (rail : list nat)
| In_stages (stages : list (list transfer))
| Shared (shares : list Copies.share).

(** nothing is faster than [b], of a layer whatever is copied; of units, nothing within the time moves fewer bytes;
    of stages, none are shorter; of tokens, some GPU has as many *)
Definition bounded (i : instance) (b : Q) : Prop :=
  match i with
  | Jobs_on speeds sizes => jobs_bounded speeds sizes b
  | Chunks_between M R tx rx cs => chunks_bounded M R tx rx cs b
  | Bytes_between M R tx rx demand => bytes_bounded M R tx rx (blanked 0 demand) b
  | Units_between M R gpus tx rx near us within => units_bounded M R gpus tx rx near us (fst within) (snd within) b
  | Stages_of n demand => stages_bounded n demand b
  | Tokens_on counts holds spare node => split_bounded counts holds spare node b
  | Layer_on tokens held slots tx rx bytes => Layer.layer_bounded tokens held slots tx rx bytes b
  end.

(** the solution takes [time]; of units, it moves so many bytes; of stages, their lengths add up to so many;
    of tokens, the fullest GPU has so many; and where it is a plan file, the problem is that of the file *)
Definition attained (i : instance) (s : solution) (time : Q) : Prop :=
  match i, s with
  | Jobs_on speeds sizes, Rails a => assignment_takes speeds sizes a time
  | Chunks_between M R tx rx cs, Rails rail => takes M R tx rx cs rail time
  | Chunks_between M R tx rx cs, In_file f =>
      (tx = file_tx f /\ rx = file_rx f /\ cs = file_chunks f) /\ takes M R tx rx cs (file_rail f) time
  | Bytes_between M R tx rx demand, Divided unit cs rail => bytes_done M R tx rx (blanked 0 demand) time /\
      exists t, (t == nq (Npos unit) * time)%Q /\ takes M R tx rx cs rail t
  | Units_between M R gpus tx rx near us within, Rails rail => units_move M R gpus tx rx near us (fst within) (snd within) rail time
  | Units_between M R gpus tx rx near us within, In_file f =>
      units_in R f gpus tx rx near us /\ units_move M R gpus tx rx near us (fst within) (snd within) (file_rail f) time
  | Stages_of n demand, In_stages stages => carry n demand stages /\ (inject_Z (Z.of_N (total_length stages)) == time)%Q
  | Tokens_on counts holds spare node, Shared shares => split_takes counts holds spare node shares time
  | _, _ => False
  end.

Definition well_formed (i : instance) : bool :=
  match i with
  | Jobs_on _ sizes => forallb (N.ltb 0) sizes
  | Chunks_between M R tx rx cs => (0 <? M)%nat && (0 <? R)%nat && shaped M R tx && shaped M R rx && in_range M cs
  | Bytes_between M R tx rx demand => (0 <? M)%nat && (0 <? R)%nat && shaped M R tx && shaped M R rx && shaped M M demand
  | Units_between M R gpus tx rx near us _ =>
      (0 <? M)%nat && (0 <? R)%nat && (0 <? gpus) && shaped M R tx && shaped M R rx && (length near =? R)%nat && sound_units M gpus us
  | Stages_of n demand => (0 <? n)%nat && shaped n n demand && same_rates demand (blanked 0 demand)
  | Tokens_on counts holds spare node =>
      negb (nothing holds) && same_gpus holds spare node && (fold_left N.lor holds 0 =? N.ones (size_of counts))
  | Layer_on tokens held slots tx rx _ => negb (nothing slots) && negb (nothing tokens) && Layer.layer_formed tokens slots tx rx
      && Layer.layer_formed held slots tx rx && (nothing held || (length held =? length tokens)%nat)
  end.

Definition shows (i : instance) (e : evidence) (p : N) (q : positive) : bool :=
  match i, e with
  | Jobs_on speeds sizes, Of_jobs w => check_jobs w speeds sizes p q
  | Chunks_between M R tx rx cs, Of_side s k w => check_side w s k M R tx rx cs p q
  | Chunks_between M R tx rx cs, Of_sides sends recvs =>
      check_joint (tightest_first tx rx cs p q (sides_of sends recvs)) M R tx rx cs p q
  | Chunks_between M R tx rx cs, Of_prices a b => check_chunk_prices M R tx rx a b cs p q
  | Chunks_between M R tx rx cs, Of_whole a b => check_whole M R tx rx a b cs p q
  | Bytes_between M R tx rx demand, Of_prices a b => check_prices_of M R tx rx a b (blanked 0 demand) p q
  | Units_between M R gpus tx rx near us within, Of_moves unit a b =>
      shaped M R a && shaped M R b
      && check_moved_prices M R gpus tx rx near us a b unit (fst within) (snd within) p q
  | Stages_of n demand, Of_line s k => check_line n demand s k p q
  | Tokens_on counts holds spare node, Of_slots w =>
      check_split counts holds spare node (largest_first (table counts) w) p q
  | Layer_on tokens held slots tx rx bytes, Of_node_prices u v w => Layer.check_layer tokens held slots tx rx bytes u v w p q
  | _, _ => false
  end.

Lemma shows_sound i e p q : shows i e p q = true -> bounded i (Z.of_N p # q).
Proof.
  destruct i as [speeds sizes|M R tx rx cs|M R tx rx demand|M R gpus tx rx near us within|n demand|counts holds spare node|tokens held slots tx rx bytes],
    e as [w|s k w|sends recvs|a b|a b|unit a b|s k|w|u v w];
    cbn [shows bounded]; try discriminate.
  - apply T7_jobs.
  - apply check_side_sound.
  - intros H rail t _ P T. eapply T7_joint_sound; eauto.
  - apply check_chunk_prices_sound.
  - intros H rail t _ P T. eapply T7_whole; eauto.
  - apply T7_priced.
  - intros H. apply andb_prop in H. destruct H as [_ H]. eapply T14_moved_prices; eauto.
  - apply T13_bound.
  - apply T15_split.
  - apply Layer.T16_layer.
Qed.

Definition same_chunk (c d : chunk) : bool := (src c =? src d)%nat && (dst c =? dst d)%nat && (size c =? size d).
Definition loads_are (M R : nat) (t : tree) (loads : list N) : bool :=
  (size_of loads =? N.of_nat M * N.of_nat R) && walk (fun i v => entry t i =? v) 0 loads.

(** what a plan file says of itself is so *)
Definition check_file (M R : nat) (f : file) (p : N) (q : positive) : bool :=
  let cs := file_chunks f in
  let rail := file_rail f in
  in_range M cs && same_length rail cs && forallb (fun n => (n <? R)%nat) rail &&
  let loads := both M R cs rail in
  lasts M R (file_tx f) (file_rx f) loads p q
  && (loads_are M R (fst loads) (file_send f) && loads_are M R (snd loads) (file_recv f)).

Theorem T7_file : forall M R f p q, check_file M R f p q = true ->
  takes M R (file_tx f) (file_rx f) (file_chunks f) (file_rail f) (Z.of_N p # q).
Proof.
  unfold check_file. cbn zeta. intros M R f p q H. apply T7_takes. unfold check_takes.
  apply andb_prop in H. destruct H as [H L]. apply andb_prop in L. destruct L as [L _]. now rewrite H, L.
Qed.

Definition same_unit (u v : unit_) : bool :=
  (start u =? start v) && (into u =? into v)%nat && (weight u =? weight v) && (needs u =? needs v).
Definition are_units_in (R : nat) (f : file) (gpus : N) (tx rx : list (list N)) (near : list N) (us : list unit_) : bool :=
  same_rates tx (file_tx f) && same_rates rx (file_rx f) && same same_chunk (map (chunk_of_unit gpus) us) (file_chunks f)
  && match file_inner f with
     | Some i => (gpus =? inner_gpus i) && same N.eqb near (near_in R i) && same same_unit us (inner_units i)
     | None => false
     end.

Definition reaches (i : instance) (s : solution) (v : frac) : bool :=
  match i, s with
  | Jobs_on speeds sizes, Rails a => check_assignment speeds sizes a (fst v) (snd v)
  | Chunks_between M R tx rx cs, Rails rail => check_takes M R tx rx cs rail (fst v) (snd v)
  | Chunks_between M R tx rx cs, In_file f =>
      same_rates tx (file_tx f) && same_rates rx (file_rx f) && same same_chunk cs (file_chunks f)
      && equal v (file_time f) && check_file M R f (fst v) (snd v)
  | Bytes_between M R tx rx demand, Divided unit cs rail =>
      same_rates demand (blanked 0 demand) && check_division M R tx rx (blanked 0 demand) unit cs rail (fst v) (snd v)
  | Units_between M R gpus tx rx near us within, Rails rail =>
      check_moves M R gpus tx rx near us (fst within) (snd within) rail (fst v) (snd v)
  | Units_between M R gpus tx rx near us within, In_file f =>
      are_units_in R f gpus tx rx near us && check_file M R f (fst (file_time f)) (snd (file_time f))
      && check_moves M R gpus tx rx near us (fst within) (snd within) (file_rail f) (fst v) (snd v)
  | Stages_of n demand, In_stages stages => check_stages n demand stages (fst v) (snd v)
  | Tokens_on counts holds spare node, Shared shares => check_shares counts holds spare node shares (fst v) (snd v)
  | _, _ => false
  end.

Lemma same_spec {A} (eqb : A -> A -> bool) : (forall x y, eqb x y = true -> x = y) -> forall l m, same eqb l m = true -> l = m.
Proof.
  intros E. induction l as [|x l IH]; intros [|y m] H; try discriminate; [reflexivity|]. cbn [same] in H.
  apply andb_prop in H. destruct H as [A1 B]. rewrite (E _ _ A1), (IH _ B). reflexivity.
Qed.

Lemma same_rates_spec l m : same_rates l m = true -> l = m.
Proof. apply same_spec. apply same_spec. intros x y H. now apply N.eqb_eq. Qed.

Lemma same_chunk_spec c d : same_chunk c d = true -> c = d.
Proof.
  unfold same_chunk. intros H. apply andb_prop in H. destruct H as [H C]. apply andb_prop in H. destruct H as [A B].
  apply Nat.eqb_eq in A, B. apply N.eqb_eq in C. destruct c, d. cbn in *. congruence.
Qed.

Lemma same_unit_spec u v : same_unit u v = true -> u = v.
Proof.
  unfold same_unit. intros H. repeat (apply andb_prop in H; destruct H as [H ?]).
  repeat match goal with E : (_ =? _) = true |- _ => apply N.eqb_eq in E | E : (_ =? _)%nat = true |- _ => apply Nat.eqb_eq in E end.
  destruct u, v. cbn in *. congruence.
Qed.

Lemma are_units_in_spec R f gpus tx rx near us : are_units_in R f gpus tx rx near us = true -> units_in R f gpus tx rx near us.
Proof.
  unfold are_units_in, units_in. intros H. apply andb_prop in H. destruct H as [H I]. apply andb_prop in H. destruct H as [H C].
  apply andb_prop in H. destruct H as [A B]. apply same_rates_spec in A, B. apply (same_spec _ same_chunk_spec) in C.
  split; [exact A|split; [exact B|split; [exact C|]]]. destruct (file_inner f) as [i|]; [|discriminate]. exists i.
  apply andb_prop in I. destruct I as [I U]. apply andb_prop in I. destruct I as [G Nr]. apply N.eqb_eq in G.
  apply (same_spec N.eqb (fun x y => proj1 (N.eqb_eq x y))) in Nr. apply (same_spec _ same_unit_spec) in U. auto.
Qed.

Lemma reaches_sound i s v : reaches i s v = true -> attained i s (time_of v).
Proof.
  destruct i as [speeds sizes|M R tx rx cs|M R tx rx demand|M R gpus tx rx near us within|n demand|counts holds spare node|tokens held slots tx rx bytes],
    s as [rail|f|unit parcels rail|stages|shares];
    cbn [reaches attained]; try discriminate.
  - apply T7_assignment.
  - apply T7_takes.
  - intros H. apply andb_prop in H. destruct H as [H F]. apply andb_prop in H. destruct H as [H _].
    apply andb_prop in H. destruct H as [H C]. apply andb_prop in H. destruct H as [A B].
    apply same_rates_spec in A, B. apply (same_spec _ same_chunk_spec) in C. split; [auto|]. subst. now apply T7_file.
  - intros H. apply andb_prop in H. destruct H as [_ H]. split; [eapply T7_division|eapply check_division_takes]; eauto.
  - apply T14_moves.
  - intros H. apply andb_prop in H. destruct H as [H Mv]. apply andb_prop in H. destruct H as [H _].
    split; [now apply are_units_in_spec|now apply T14_moves in Mv].
  - apply T13_stages.
  - apply T15_shares.
Qed.

(** *** The verdict *)

Inductive status := Proved | Claimed | Open.

Record certificate := Certificate {
  problem : instance; because : option evidence;     (* [None]: on a solver's word *)
  own : option solution; other : option solution;    (* this plan; the best one known, if another *)
  bound : frac; value : option frac; best_value : option frac; optimal : bool; optimum : status }.

Inductive fault := Not_formed | Not_shown | Not_its_value | Not_its_best | Below_bound | Worse_best | Not_optimal | Not_optimum.
Inductive answer := Accepted (checked optimal : bool) (optimum : status) | Rejected (why : fault).

Definition agrees (i : instance) (s : option solution) (v : option frac) : bool :=
  match s, v with Some s, Some v => reaches i s v | None, None => true | _, _ => false end.
Definition given (c : certificate) : option frac := match other c with Some _ => best_value c | None => value c end.
Definition best_agrees (c : certificate) : bool :=
  match other c with
  | Some _ => agrees (problem c) (other c) (best_value c)
  | None => match best_value c, value c with None, _ => true | Some b, Some v => equal b v | Some _, None => false end
  end.
Definition is_status (x y : status) : bool := match x, y with Proved, Proved | Claimed, Claimed | Open, Open => true | _, _ => false end.
Definition if_both (P : frac -> frac -> bool) (x y : option frac) : bool := match x, y with Some x, Some y => P x y | _, _ => true end.
Definition both_are (P : frac -> frac -> bool) (x y : option frac) : bool := match x, y with Some x, Some y => P x y | _, _ => false end.

Definition verdict (c : certificate) : answer :=
  let checked := match because c with Some _ => true | None => false end in
  let optimal_here := checked && both_are equal (value c) (Some (bound c)) in
  let known := if both_are equal (given c) (Some (bound c)) then if checked then Proved else Claimed else Open in
  if negb (well_formed (problem c)) then Rejected Not_formed
  else if negb (agrees (problem c) (own c) (value c)) then Rejected Not_its_value
  else if negb (best_agrees c) then Rejected Not_its_best
  else if negb (match because c with Some e => shows (problem c) e (fst (bound c)) (snd (bound c)) | None => true end) then Rejected Not_shown
  else if negb (if_both no_more (Some (bound c)) (given c)) then Rejected Below_bound
  else if negb (if_both no_more (given c) (value c)) then Rejected Worse_best
  else if optimal c && negb optimal_here then Rejected Not_optimal
  else if negb (is_status (optimum c) Open || is_status (optimum c) known) then Rejected Not_optimum
  else Accepted checked optimal_here known.

(** what a verdict of these words says of a certificate *)
Definition holds (c : certificate) (checked optimal_here : bool) (known : status) : Prop :=
  (checked = true -> bounded (problem c) (time_of (bound c))) /\
  (forall s v, own c = Some s -> value c = Some v -> attained (problem c) s (time_of v)) /\
  (forall s v, other c = Some s -> best_value c = Some v -> attained (problem c) s (time_of v)) /\
  (optimal_here = true -> checked = true /\
    exists s v, own c = Some s /\ attained (problem c) s (time_of v) /\ (time_of v == time_of (bound c))%Q) /\
  (known = Proved -> checked = true /\
    exists s v, attained (problem c) s (time_of v) /\ (time_of v == time_of (bound c))%Q).

Lemma agrees_sound i s v : agrees i s v = true -> forall x y, s = Some x -> v = Some y -> attained i x (time_of y).
Proof. intros H x y -> ->. now apply reaches_sound. Qed.

Theorem T7_verdict : forall c checked optimal_here known,
  verdict c = Accepted checked optimal_here known -> holds c checked optimal_here known.
Proof.
  unfold verdict. cbn zeta. intros c checked optimal_here known H.
  destruct (well_formed (problem c)); [|discriminate]. cbn [negb] in H.
  destruct (agrees (problem c) (own c) (value c)) eqn:Own; [|discriminate]. cbn [negb] in H.
  destruct (best_agrees c) eqn:Best; [|discriminate]. cbn [negb] in H.
  destruct (match because c with Some e => shows (problem c) e (fst (bound c)) (snd (bound c)) | None => true end) eqn:Shown; [|discriminate].
  cbn [negb] in H.
  repeat match type of H with (if ?b then _ else _) = _ => destruct b; [discriminate|] end.
  injection H as Hc Ho Hk.
  assert (B : checked = true -> bounded (problem c) (time_of (bound c))).
  { intros E. rewrite E in Hc. destruct (because c) as [e|]; [|discriminate]. now apply shows_sound in Shown. }
  assert (A : forall s v, own c = Some s -> value c = Some v -> attained (problem c) s (time_of v)) by (eapply agrees_sound; eauto).
  assert (A' : forall s v, other c = Some s -> best_value c = Some v -> attained (problem c) s (time_of v)).
  { unfold best_agrees in Best. intros s v E. rewrite E in Best. apply (agrees_sound _ _ _ Best s v eq_refl). }
  assert (Has : forall v, value c = Some v -> exists s, own c = Some s).
  { intros v E. unfold agrees in Own. rewrite E in Own. destruct (own c) as [s|]; [now exists s|discriminate]. }
  split; [exact B|split; [exact A|split; [exact A'|split]]].
  - intros ->. apply andb_prop in Ho. destruct Ho as [C E]. split; [now rewrite <- Hc|].
    destruct (value c) as [v|] eqn:V; [|discriminate]. cbn [both_are] in E. destruct (Has v eq_refl) as (s & S).
    exists s, v. split; [exact S|]. split; [now apply A|now apply equal_time].
  - intros ->. unfold given in Hk. destruct (other c) as [s|] eqn:O.
    + destruct (best_value c) as [v|] eqn:V; cbn [both_are] in Hk; [|discriminate]. destruct (equal v (bound c)) eqn:E; [|discriminate].
      destruct (because c); [|discriminate]. split; [now rewrite <- Hc|]. exists s, v. split; [now apply A'|now apply equal_time].
    + destruct (value c) as [v|] eqn:V; cbn [both_are] in Hk; [|discriminate]. destruct (equal v (bound c)) eqn:E; [|discriminate].
      destruct (because c); [|discriminate]. split; [now rewrite <- Hc|]. destruct (Has v eq_refl) as (s & S).
      exists s, v. split; [now apply A|now apply equal_time].
Qed.

(** a claim refuted: a plan that takes more than the claim allows, and the optimum of its problem *)
Record refutation := Refutation { truth : certificate; bad : solution; bad_value : frac; least_value : frac; allowed : frac }.

Definition refutation_verdict (r : refutation) : bool :=
  match verdict (truth r) with
  | Accepted true true _ =>
      equal (least_value r) (bound (truth r)) && reaches (problem (truth r)) (bad r) (bad_value r)
      && negb (no_more (bad_value r) (allowed r))
  | _ => false
  end.

Lemma exceeds x y : negb (no_more x y) = true -> (time_of y < time_of x)%Q.
Proof.
  intros N. apply negb_true_iff in N. unfold no_more in N. apply N.leb_gt in N. unfold time_of, Qlt. cbn [Qnum Qden].
  apply N2Z.inj_lt in N. rewrite !N2Z.inj_mul in N. exact N.
Qed.

Theorem T7_refutation : forall r, refutation_verdict r = true ->
  bounded (problem (truth r)) (time_of (bound (truth r))) /\ (time_of (least_value r) == time_of (bound (truth r)))%Q /\
  (exists s v, attained (problem (truth r)) s (time_of v) /\ (time_of v == time_of (bound (truth r)))%Q) /\
  attained (problem (truth r)) (bad r) (time_of (bad_value r)) /\ (time_of (allowed r) < time_of (bad_value r))%Q.
Proof.
  unfold refutation_verdict. intros r H. destruct (verdict (truth r)) as [[] [] known|] eqn:V; try discriminate.
  apply T7_verdict in V. destruct V as (B & _ & _ & O & _). destruct (O eq_refl) as (_ & s & v & _ & A & E).
  apply andb_prop in H. destruct H as [H N]. apply andb_prop in H. destruct H as [L W].
  split; [now apply B|]. split; [now apply equal_time|]. split; [now exists s, v|]. split; [now apply reaches_sound|].
  now apply exceeds.
Qed.

(** a claim about FAST refuted: its phases take [value], where the claim allows less *)
Definition fast_verdict (m B1 B2 inside : N) (ws : list N) (value least allowed : frac) : bool :=
  (0 <? m) && (0 <? B1) && (0 <? B2) && negb (nothing ws)
  && (fst value * (m * B1 * B2) =? all_phases m B1 B2 inside ws * Npos (snd value))
  && (fst least * (m * B2) =? total ws * Npos (snd least)) && negb (no_more value allowed).

Lemma time_is x a d : 0 < d -> fst x * d = a * Npos (snd x) -> (nq a / nq d == time_of x)%Q.
Proof.
  intros Hd E. apply (f_equal nq) in E. assert (Q : (nq (fst x) * nq d == nq a * nq (Npos (snd x)))%Q) by (rewrite <- !nq_mul, E; reflexivity).
  apply nq_pos in Hd. unfold time_of. rewrite <- nq_over. pose proof (nq_pos (Npos (snd x)) eq_refl) as Hx.
  apply (Qmult_inj_r _ _ (nq d * nq (Npos (snd x)))); [nra|]. field_simplify; [|lra|lra]. lra.
Qed.

Theorem T10_fast_verdict : forall m B1 B2 inside ws value least allowed,
  fast_verdict m B1 B2 inside ws value least allowed = true ->
  (fast_time m B1 B2 inside ws == time_of value)%Q /\ (Fast.optimum (nq m) (nq B2) (nq (total ws)) == time_of least)%Q /\
  (time_of allowed < time_of value)%Q.
Proof.
  unfold fast_verdict. intros m B1 B2 inside ws value least allowed H.
  repeat match goal with H : _ && _ = true |- _ => apply andb_prop in H; destruct H end.
  repeat match goal with H : (_ <? _) = true |- _ => apply N.ltb_lt in H | H : (_ =? _) = true |- _ => apply N.eqb_eq in H end.
  split; [|split; [|now apply exceeds]].
  - rewrite T10_phases by assumption. apply time_is; [lia|assumption].
  - unfold Fast.optimum. rewrite <- nq_mul. apply time_is; [lia|assumption].
Qed.

(** a claim about one hot GPU's channels refuted: its largest flow, one byte of which takes [value] *)
Definition sum_of (xs : list frac) : N * N :=
  fold_right (fun x s => (fst x * snd s + fst s * Npos (snd x), Npos (snd x) * snd s)) (0, 1) xs.
Definition flow_verdict (n up nic : N) (direct : frac) (peers : list frac) (value least allowed : frac) : bool :=
  let most := channels n up nic in
  let all := sum_of (direct :: peers) in
  (1 <=? n) && (fst value * most =? Npos (snd value)) && (fst least * (n * nic) =? Npos (snd least)) && negb (no_more value allowed)
  && (size_of peers =? n - 1) && forallb (fun x => fst x <=? nic * Npos (snd x)) (direct :: peers)
  && (fst (sum_of peers) <=? up * snd (sum_of peers)) && (fst all =? most * snd all).

Theorem T10_flow_verdict : forall n up nic direct peers value least allowed,
  flow_verdict n up nic direct peers value least allowed = true ->
  exists most, (time_of value * nq most == 1)%Q /\
    (exists p y r, Capacity.flow (N.to_nat n) (nq up) (nq nic) p y r (nq most)) /\
    (forall p y r v, Capacity.flow (N.to_nat n) (nq up) (nq nic) p y r v -> (v <= nq most)%Q) /\
    (time_of least * nq (n * nic) == 1)%Q /\ (time_of allowed < time_of value)%Q.
Proof.
  unfold flow_verdict. cbv zeta. intros n up nic direct peers value least allowed H.
  repeat match goal with H : _ && _ = true |- _ => apply andb_prop in H; destruct H end.
  repeat match goal with H : (_ <=? _) = true |- _ => apply N.leb_le in H | H : (_ =? _) = true |- _ => apply N.eqb_eq in H end.
  assert (One : forall x d, fst x * d = Npos (snd x) -> (time_of x * nq d == 1)%Q).
  { intros x d E. apply (f_equal nq) in E. assert (Q : (nq (fst x) * nq d == nq (Npos (snd x)))%Q) by (rewrite <- nq_mul, E; reflexivity).
    unfold time_of. rewrite <- nq_over. pose proof (nq_pos (Npos (snd x)) eq_refl) as Hx.
    setoid_replace (nq (fst x) / nq (Npos (snd x)) * nq d)%Q with (nq (fst x) * nq d / nq (Npos (snd x)))%Q by (field; lra).
    rewrite Q. field. lra. }
  exists (channels n up nic). destruct (T10_hot_flow n up nic) as [A B]; [assumption|].
  split; [now apply One|]. split; [exact A|]. split; [exact B|]. split; [now apply One|now apply exceeds].
Qed.

(** a plan file by itself *)
Definition plan_verdict (M R : nat) (f : file) : bool :=
  (0 <? M)%nat && (0 <? R)%nat && shaped M R (file_tx f) && shaped M R (file_rx f)
  && check_file M R f (fst (file_time f)) (snd (file_time f)).

Theorem T7_plan_verdict : forall M R f, plan_verdict M R f = true ->
  takes M R (file_tx f) (file_rx f) (file_chunks f) (file_rail f) (time_of (file_time f)).
Proof. unfold plan_verdict. intros M R f H. apply andb_prop in H. destruct H as [_ H]. now apply T7_file. Qed.

(** for the reader of files, who has no name for the record's fields *)
Definition chunk_of (from to : nat) (bytes : N) : chunk := Chunk from to bytes.
Definition transfer_of (from to : nat) (bytes : N) : transfer := Transfer from to bytes.
Definition unit_of (gpu : N) (to : nat) (bytes targets : N) : unit_ := Unit gpu to bytes targets.
Definition share_of (expert gpu : nat) (tokens : N) : Copies.share := Share expert gpu tokens.
