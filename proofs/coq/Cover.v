(** * T7, last resort: follow every way to fill the rails to its dead end

    Jobs come as (size, how many).  The first job of the list lies on some rail; among rails of
    the same room it is no matter which; everything else that may lie with it is tried.  A rail
    may waste no more than all rails together can afford, which keeps the choices few. *)
From Coq Require Import Arith NArith Lia List Bool Permutation.
From Rails Require Import Jobs Counting.
Import ListNotations.
Open Scope N_scope.

(** ** The search: [true] means that every way fails *)

Definition kind : Type := N * nat.
Definition expand (l : list kind) : list N := flat_map (fun t => repeat (fst t) (snd t)) l.
Definition weight (l : list kind) : N := fold_right (fun t v => fst t * N.of_nat (snd t) + v) 0 l.
Definition push (s : N) (c : nat) (l : list kind) : list kind := match c with O => l | S _ => (s, c) :: l end.

(** [k] refutes what is left after every choice from [l] with a sum in [need .. room] *)
Fixpoint fill_rail (l : list kind) (room need : N) (left : list kind) (k : list kind -> bool) : bool :=
  match l with
  | [] => if need =? 0 then k (rev_append left []) else true
  | (s, c) :: rest =>
      if weight l <? need then true
      else (fix choose (c : nat) (room need : N) : bool :=
              fill_rail rest room need (push s c left) k
              && match c with O => true | S c' => if s <=? room then choose c' (room - s) (need - s) else true end)
           c room need
  end.

Fixpoint remove_one (C : N) (caps : list N) : list N :=
  match caps with [] => [] | c :: caps => if c =? C then caps else c :: remove_one C caps end.

(** the first job's rail is one of each different room in turn; [rails] counts those left *)
Fixpoint cover (rails : nat) (caps : list N) (l : list kind) : bool :=
  match l, rails with
  | (x, S c) :: rest, O => match caps with [] => true | _ => false end
  | (x, S c) :: rest, S rails' =>
      forallb (fun C =>
        if C <? x then true
        else let others := remove_one C caps in
             fill_rail (push x c rest) (C - x) (weight l - total others - x) [] (cover rails' others))
        (nodup N.eq_dec caps)
  | _, _ => false
  end.

(** equal jobs counted, the order kept *)
Fixpoint kinds (ps : list N) : list kind :=
  match ps with
  | [] => []
  | p :: ps => match kinds ps with
               | (s, c) :: rest => if p =? s then (s, S c) :: rest else (p, 1%nat) :: (s, c) :: rest
               | [] => [(p, 1%nat)]
               end
  end.

Definition by_cover (caps ps : list N) : bool :=
  let live := filter (N.ltb 0) caps in
  forallb (N.ltb 0) ps && cover (length live) live (kinds ps).

(** ** Soundness *)

(** [l] goes into bins of these rooms *)
Definition packable (caps l : list N) : Prop :=
  exists bins, Permutation (map snd bins) caps /\ Forall (fun b => total (fst b) <= snd b) bins /\
    Permutation (concat (map fst bins)) l.

Lemma weight_expand l : weight l = total (expand l).
Proof.
  induction l as [|[s c] l IH]; [reflexivity|]. simpl. rewrite total_app, IH. f_equal.
  clear. induction c as [|c IH]; [simpl; lia|]. simpl repeat. rewrite total_cons, <- IH. lia.
Qed.

Lemma push_expand s c l : expand (push s c l) = repeat s c ++ expand l.
Proof. destruct c; reflexivity. Qed.

Lemma expand_perm l m : Permutation l m -> Permutation (expand l) (expand m).
Proof.
  induction 1; simpl; auto.
  - now apply Permutation_app_head.
  - rewrite !app_assoc. apply Permutation_app_tail, Permutation_app_comm.
  - etransitivity; eauto.
Qed.

(** how the copies of one size are shared between what is taken and what is left *)
Lemma share (s : N) : forall c (t r L : list N), Permutation (t ++ r) (repeat s c ++ L) ->
  exists j t' r', (j <= c)%nat /\ Permutation t (repeat s j ++ t') /\ Permutation r (repeat s (c - j) ++ r')
    /\ Permutation (t' ++ r') L.
Proof.
  induction c as [|c IH]; intros t r L P; simpl in P.
  - exists 0%nat, t, r. auto.
  - assert (In s (t ++ r)) by (apply (Permutation_in s (Permutation_sym P)); now left).
    apply in_app_or in H. destruct H as [H|H]; apply in_split in H; destruct H as (u & v & ->).
    + rewrite <- app_assoc in P. simpl in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
      rewrite app_assoc in P. destruct (IH (u ++ v) r L P) as (j & t' & r' & Hj & A & B & D).
      exists (S j), t', r'. split; [lia|]. split; [|auto].
      simpl. rewrite <- A. symmetry. apply Permutation_middle.
    + rewrite app_assoc in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
      rewrite <- app_assoc in P. destruct (IH t (u ++ v) L P) as (j & t' & r' & Hj & A & B & D).
      exists j, t', r'. split; [lia|]. split; [auto|]. split; [|auto].
      replace (S c - j)%nat with (S (c - j)) by lia. simpl. rewrite <- B. symmetry. apply Permutation_middle.
Qed.

Lemma total_repeat s c : total (repeat s c) = s * N.of_nat c.
Proof. induction c as [|c IH]; [simpl; lia|]. simpl repeat. rewrite total_cons, IH. lia. Qed.

Lemma fill_rail_sound k : forall l room need left, fill_rail l room need left k = true ->
  forall t r, Permutation (t ++ r) (expand l) -> total t <= room -> need <= total t ->
  exists m, k m = true /\ Permutation (expand m) (expand left ++ r).
Proof.
  induction l as [|[s c] l IH]; intros room need left H t r P Hr Hn.
  - simpl in P. apply Permutation_sym, Permutation_nil, app_eq_nil in P. destruct P as [-> ->].
    simpl in H. replace need with 0 in H by (change (total []) with 0 in Hn; lia). simpl in H.
    exists (rev_append left []). split; auto. rewrite app_nil_r, rev_append_rev, app_nil_r.
    apply expand_perm. symmetry. apply Permutation_rev.
  - cbn [fill_rail] in H. match type of H with (if ?b then _ else _) = _ => destruct b eqn:Hw end.
    { exfalso. apply N.ltb_lt in Hw. apply total_perm in P. rewrite total_app in P. pose proof (weight_expand ((s, c) :: l)) as E.
      unfold kind in *. lia. }
    change (expand ((s, c) :: l)) with (repeat s c ++ expand l) in P.
    apply share in P. destruct P as (j & t' & r' & Hj & A & B & D).
    rewrite (total_perm _ _ A), total_app, total_repeat in Hr, Hn.
    assert (G : forall c j room need left, (j <= c)%nat ->
      (fix choose (c : nat) (room need : N) : bool :=
         fill_rail l room need (push s c left) k
         && match c with O => true | S c' => if s <=? room then choose c' (room - s) (need - s) else true end)
        c room need = true ->
      s * N.of_nat j + total t' <= room -> need <= s * N.of_nat j + total t' ->
      exists m, k m = true /\ Permutation (expand m) ((repeat s (c - j) ++ expand left) ++ r')).
    { clear - IH D. induction c as [|c IHc]; intros j room need left Hj H Hr Hn; apply andb_prop in H; destruct H as [H1 H2].
      - replace j with 0%nat in * by lia. destruct (IH _ _ _ H1 t' r' D) as (m & Hm & Pm); [lia|lia|].
        exists m. split; auto.
      - destruct j as [|j].
        + destruct (IH _ _ _ H1 t' r' D) as (m & Hm & Pm); [lia|lia|]. exists m. split; auto.
        + destruct (N.leb_spec s room); [|lia].
          destruct (IHc j (room - s) (need - s) left) as (m & Hm & Pm); [lia|exact H2|lia|lia|].
          exists m. split; auto. }
    destruct (G c j room need left Hj H Hr Hn) as (m & Hm & Pm). exists m. split; auto.
    rewrite Pm, B, (Permutation_app_comm (repeat s (c - j))), <- !app_assoc. reflexivity.
Qed.

Lemma total_concat (bins : list (list N * N)) : Forall (fun b => total (fst b) <= snd b) bins ->
  total (concat (map fst bins)) <= total (map snd bins).
Proof.
  induction 1 as [|t bins Ht F IH]; [simpl; lia|]. simpl map. simpl concat. rewrite total_app, total_cons. lia.
Qed.

Lemma remove_one_perm C caps : In C caps -> Permutation caps (C :: remove_one C caps).
Proof.
  induction caps as [|c caps IH]; [easy|]. intros H. simpl. destruct (N.eqb_spec c C) as [->|Hne]; [reflexivity|].
  destruct H as [->|H]; [contradiction|]. rewrite (IH H) at 1. apply perm_swap.
Qed.

Lemma cover_sound : forall b caps l, cover b caps l = true -> ~ packable caps (expand l).
Proof.
  induction b as [|b IH]; intros caps [|[x [|c]] l] H (bins & Pc & F & P); cbn [cover] in H; try discriminate.
  - destruct caps; [|discriminate]. apply Permutation_sym, Permutation_nil, map_eq_nil in Pc. subst bins.
    simpl in P. apply Permutation_nil in P. discriminate.
  - assert (Hin : In x (concat (map fst bins))) by (apply (Permutation_in x (Permutation_sym P)); now left).
    apply in_concat in Hin. destruct Hin as (bin & Hb & Hx). apply in_map_iff in Hb. destruct Hb as ([bin' C] & E & Hb).
    simpl in E. subst bin'. assert (HC : In C caps) by (apply (Permutation_in C Pc), in_map_iff; now exists (bin, C)).
    rewrite forallb_forall in H. specialize (H C (proj2 (nodup_In _ _ _) HC)). cbv zeta in H.
    apply in_split in Hb. destruct Hb as (b1 & b2 & ->). apply in_split in Hx. destruct Hx as (u & v & ->).
    apply Forall_app in F. destruct F as [F1 F2]. inversion_clear F2 as [|? ? Hu F3]. cbn [fst snd] in Hu.
    rewrite total_app, total_cons in Hu.
    assert (F' : Forall (fun t => total (fst t) <= snd t) (b1 ++ b2)) by (apply Forall_app; auto).
    set (others := remove_one C caps) in *.
    assert (Po : Permutation (map snd (b1 ++ b2)) others).
    { apply (Permutation_cons_inv (a := C)). unfold others. rewrite <- (remove_one_perm C caps HC), <- Pc, !map_app.
      cbn [map snd]. apply Permutation_middle. }
    assert (P' : Permutation ((u ++ v) ++ concat (map fst (b1 ++ b2))) (expand (push x c l))).
    { rewrite push_expand. rewrite map_app, concat_app in *. cbn [map fst concat] in P.
      apply (Permutation_cons_inv (a := x)). change (x :: repeat x c ++ expand l) with (expand ((x, S c) :: l)). rewrite <- P.
      transitivity (((u ++ x :: v) ++ concat (map fst b1)) ++ concat (map fst b2)).
      - rewrite <- !app_assoc. simpl. apply Permutation_middle.
      - rewrite app_assoc. apply Permutation_app_tail, Permutation_app_comm. }
    destruct (N.ltb_spec C x); [lia|].
    destruct (fill_rail_sound _ _ _ _ _ H (u ++ v) (concat (map fst (b1 ++ b2))) P') as (m & Hm & Pm).
    + rewrite total_app. lia.
    + pose proof (total_concat (b1 ++ b2) F') as Hc. rewrite (total_perm _ _ Po) in Hc.
      assert (W : weight ((x, S c) :: l) = x + (total (u ++ v) + total (concat (map fst (b1 ++ b2))))).
      { rewrite weight_expand. rewrite <- total_app, (total_perm _ _ P'), push_expand. reflexivity. }
      unfold kind in *. lia.
    + apply (IH others m Hm). exists (b1 ++ b2). repeat split; auto. symmetry. exact Pm.
Qed.

Lemma kinds_expand ps : expand (kinds ps) = ps.
Proof.
  induction ps as [|p ps IH]; [reflexivity|]. simpl. destruct (kinds ps) as [|[s c] rest].
  - simpl in *. now rewrite <- IH.
  - destruct (N.eqb_spec p s) as [->|]; simpl in *; now rewrite IH.
Qed.

(** the loads of the rails, as bins *)
Lemma rails_perm {A} (xs : list A) a R : length a = length xs -> Forall (fun r => (r < R)%nat) a ->
  Permutation (concat (map (fun r => on r xs a) (seq 0 R))) xs.
Proof.
  revert a. induction xs as [|x xs IH]; intros [|i a] L F; try discriminate.
  - clear. induction (seq 0 R); simpl; auto.
  - inversion_clear F as [|? ? Hi F']. specialize (IH a ltac:(simpl in L; lia) F').
    transitivity (x :: concat (map (fun r => on r xs a) (seq 0 R))); [|now apply perm_skip].
    assert (E : seq 0 R = seq 0 i ++ i :: seq (S i) (R - i - 1)).
    { replace R with (i + S (R - i - 1))%nat at 1 by lia. rewrite seq_app. simpl. reflexivity. }
    assert (Off : forall s n, (forall r, In r (seq s n) -> i <> r) ->
      concat (map (fun r => on r (x :: xs) (i :: a)) (seq s n)) = concat (map (fun r => on r xs a) (seq s n))).
    { intros s n H. f_equal. apply map_ext_in. intros r Hr. rewrite on_cons.
      destruct (Nat.eqb_spec i r); [now apply H in Hr|reflexivity]. }
    rewrite E, !map_app, !concat_app. cbn [map concat]. rewrite !Off.
    + rewrite on_cons, Nat.eqb_refl. simpl. symmetry. apply Permutation_middle.
    + intros r Hr. apply in_seq in Hr. lia.
    + intros r Hr. apply in_seq in Hr. lia.
Qed.

Lemma live_rooms (P : N -> bool) caps :
  map (fun r => nth r caps 0) (filter (fun r => P (nth r caps 0)) (seq 0 (length caps))) = filter P caps.
Proof.
  induction caps as [|c caps IH]; [reflexivity|]. change (length (c :: caps)) with (S (length caps)).
  rewrite <- cons_seq, <- seq_shift.
  assert (E : forall (Q : nat -> bool) (g : nat -> N) rs,
    map g (filter Q (map S rs)) = map (fun r => g (S r)) (filter (fun r => Q (S r)) rs)).
  { intros Q g. induction rs as [|r rs IHr]; [reflexivity|]. simpl. destruct (Q (S r)); simpl; now rewrite IHr. }
  cbn [filter nth]. destruct (P c); cbn [map nth]; rewrite E; cbn [nth]; now rewrite IH.
Qed.

Theorem T7_cover_sound : forall caps ps, by_cover caps ps = true -> refuted caps ps.
Proof.
  unfold by_cover. intros caps ps H a [L F] C. apply andb_prop in H. destruct H as [Hp Hc]. rewrite forallb_forall in Hp.
  assert (Pos : forall p, In p ps -> 0 < p) by (intros p Hin; now apply N.ltb_lt, Hp).
  apply cover_sound in Hc. apply Hc. rewrite kinds_expand.
  set (open := fun r => 0 <? nth r caps 0).
  exists (map (fun r => (on r ps a, nth r caps 0)) (filter open (seq 0 (length caps)))). repeat split.
  - rewrite map_map. cbn [snd]. unfold open. rewrite (live_rooms (N.ltb 0)). reflexivity.
  - apply Forall_map, Forall_forall. intros r Hr. apply filter_In in Hr. destruct Hr as [Hr _].
    apply in_seq in Hr. cbn [fst snd]. apply (C r). lia.
  - rewrite map_map. cbn [fst]. etransitivity; [|apply (rails_perm ps a (length caps) L F)].
    assert (D : forall rs, (forall r, In r rs -> (r < length caps)%nat) ->
      concat (map (fun r => on r ps a) (filter open rs)) = concat (map (fun r => on r ps a) rs)).
    { induction rs as [|r rs IH]; intros Hr; [reflexivity|]. cbn [filter map concat].
      specialize (IH (fun s Hs => Hr s (or_intror Hs))). destruct (open r) eqn:O; cbn [map concat]; rewrite IH; [reflexivity|].
      unfold open in O. apply N.ltb_ge in O. pose proof (C r (Hr r (or_introl eq_refl))) as Cr.
      rewrite (dead_empty ps a r Pos) by lia. reflexivity. }
    rewrite D; [reflexivity|]. intros r Hr. apply in_seq in Hr. lia.
Qed.
