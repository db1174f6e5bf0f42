(** * T7, several sides at once: put their chunks on rails, one by one in every way, until no way is left

    A chunk takes bytes at every side that is looked at, a rail has room at each of them.  A way
    is the list of the rails' rooms, in any order.  What rooms can't be filled by sums of the
    chunks to come is cut off, and what is left must hold these chunks at every side. *)
From Coq Require Import Arith NArith QArith Lia List Bool Permutation Mergesort Orders.
From Rails Require Import Jobs Counting Weights Cover Certificate.
Import ListNotations.
Open Scope N_scope.

(** ** Bytes or rooms at the sides; beyond the list they are 0 *)

Definition vector : Type := list N.
Definition at_side (s : nat) (v : vector) : N := nth s v 0.

Fixpoint within (t r : vector) : bool :=
  match t, r with
  | x :: t, y :: r => (x <=? y) && within t r
  | x :: t, [] => (x =? 0) && within t []
  | [], _ => true
  end.
Fixpoint less (r t : vector) : vector :=
  match r, t with y :: r, x :: t => y - x :: less r t | _, _ => r end.
Fixpoint plus (v w : vector) : vector :=
  match v, w with x :: v, y :: w => x + y :: plus v w | [], _ => w | _, [] => v end.

(** an order, so that ways can be compared *)
Definition by_number : vector -> vector -> comparison := lex N.compare.
Definition by_rail : list vector -> list vector -> comparison := lex by_number.

Lemma by_number_opp x y : by_number x y = CompOpp (by_number y x).
Proof. apply lex_opp. intros. apply N.compare_antisym. Qed.

Module Rails_order <: TotalLeBool.
  Definition t := vector.
  Definition leb (x y : t) : bool := at_most (by_number x y).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. apply total_order, by_number_opp. Qed.
End Rails_order.
Module Rails_sort := Sort Rails_order.

Module Ways_order <: TotalLeBool.
  Definition t := list vector.
  Definition leb (x y : t) : bool := at_most (by_rail x y).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. apply total_order, lex_opp, by_number_opp. Qed.
End Ways_order.
Module Ways_sort := Sort Ways_order.

(** chunks of the first sides first, and of those the largest *)
Module Takes_order <: TotalLeBool.
  Definition t := vector.
  Definition key (v : t) : vector := map (fun x => N.min x 1) v ++ [fold_right N.max 0 v].
  Definition leb (x y : t) : bool := at_most (by_number (key y) (key x)).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. apply (total_order (fun x y => by_number (key y) (key x))), by_number_opp. Qed.
End Takes_order.
Module Takes_sort := Sort Takes_order.

(** ** The search: [true] means that no way is left *)

(** sums of the chunks to come as bits, one number a side *)
Fixpoint shifted (sums t : vector) : vector :=
  match sums, t with b :: sums, p :: t => N.lor b (N.shiftl b p) :: shifted sums t | _, _ => sums end.
(** rooms as far as such sums fill them *)
Fixpoint useful (sums r : vector) : vector :=
  match sums, r with b :: sums, c :: r => fullest b c :: useful sums r | _, _ => r end.

Record coming := Coming { sums : vector; needs : vector }.

(** every chunk with what comes after it, and what comes in all; sums are kept of so many sides *)
Fixpoint annotated (sides : nat) (ts : list vector) : list (vector * coming) * coming :=
  match ts with
  | [] => ([], Coming (repeat 1 sides) [])
  | t :: ts => let (l, c) := annotated sides ts in
               ((t, c) :: l, Coming (shifted (sums c) t) (plus t (needs c)))
  end.

Definition enough (c : coming) (way : list vector) : bool := within (needs c) (fold_right plus [] way).

(** [rails] with their useful rooms; the chunk [t] on each of them in turn, but once on neighbours that are alike *)
Fixpoint tries (f : vector -> vector) (t : vector) (before : list vector) (rails : list (vector * vector)) :
    list (list vector) :=
  match rails with
  | [] => []
  | (r, r') :: rest =>
      let others := tries f t (r' :: before) rest in
      let again := match rest with (n, _) :: _ => match by_number r n with Eq => true | _ => false end | [] => false end in
      if again then others
      else if within t r then (f (less r t) :: rev_append before (map snd rest)) :: others else others
  end.

Fixpoint different (ways : list (list vector)) : list (list vector) :=
  match ways with
  | w :: ((v :: _) as rest) => match by_rail w v with Eq => different rest | _ => w :: different rest end
  | _ => ways
  end.

Definition after (t : vector) (c : coming) (way : list vector) : list (list vector) :=
  let f := useful (sums c) in
  map Rails_sort.sort (filter (enough c) (tries f t [] (map (fun r => (r, f r)) way))).

Fixpoint search (ts : list (vector * coming)) (ways : list (list vector)) : bool :=
  match ways, ts with
  | [], _ => true
  | _, [] => false
  | _, (t, c) :: ts => if forallb (N.eqb 0) t then false else search ts (different (Ways_sort.sort (flat_map (after t c) ways)))
  end.

(** no sums of more bits than this: without them rooms stay as they are *)
Definition most_bits : N := 100000.

Definition by_joint (rails ts : list vector) : bool :=
  let all := fold_right plus [] ts in
  let sides := if fold_right N.max 0 all <=? most_bits then length all else 0%nat in
  search (fst (annotated sides (Takes_sort.sort ts))) [Rails_sort.sort rails].

(** ** Vectors *)

Lemma at_nil s : at_side s [] = 0.
Proof. now destruct s. Qed.

Lemma within_complete t : forall r, (forall s, at_side s t <= at_side s r) -> within t r = true.
Proof.
  induction t as [|x t IH]; intros r H; [reflexivity|]. pose proof (H 0%nat) as H0.
  destruct r as [|y r]; simpl; apply andb_true_intro; split.
  - apply N.eqb_eq. unfold at_side in H0. simpl in H0. lia.
  - apply IH. intros s. specialize (H (S s)). rewrite at_nil in *. exact H.
  - now apply N.leb_le.
  - apply IH. intros s. exact (H (S s)).
Qed.

Lemma at_less r : forall t s, at_side s (less r t) = at_side s r - at_side s t.
Proof.
  induction r as [|y r IH]; intros [|x t] [|s]; cbn [less]; rewrite ?at_nil, ?N.sub_0_r; try reflexivity.
  apply (IH t s).
Qed.

Lemma at_plus v : forall w s, at_side s (plus v w) = at_side s v + at_side s w.
Proof.
  induction v as [|x v IH]; intros [|y w] [|s]; cbn [plus]; rewrite ?at_nil, ?N.add_0_r; try reflexivity.
  apply (IH w s).
Qed.

Lemma at_all s l : at_side s (fold_right plus [] l) = total (map (at_side s) l).
Proof. induction l as [|v l IH]; [apply at_nil|]. simpl. now rewrite at_plus, IH. Qed.

Lemma at_shifted v : forall t s, at_side s (shifted v t) = N.lor (at_side s v) (N.shiftl (at_side s v) (at_side s t)).
Proof.
  induction v as [|b v IH]; intros [|p t] [|s]; cbn [shifted]; rewrite ?at_nil, ?N.shiftl_0_r, ?N.shiftl_0_l, ?N.lor_diag;
    try reflexivity. apply (IH t s).
Qed.

Lemma shifted_length v : forall t, length (shifted v t) = length v.
Proof. induction v as [|b v IH]; intros [|p t]; simpl; auto. Qed.

Lemma at_useful v : forall r s x, ((s < length v)%nat -> N.testbit (at_side s v) x = true) -> x <= at_side s r ->
  x <= at_side s (useful v r).
Proof.
  induction v as [|b v IH]; intros r s x H Hx; [exact Hx|]. destruct r as [|c r]; [exact Hx|].
  destruct s as [|s].
  - apply fullest_ge; [|exact Hx]. apply H. simpl. lia.
  - apply (IH r s x); [|exact Hx]. intros Hs. apply H. simpl. lia.
Qed.

(** ** What can be packed *)

(** the chunks [ts] go on these rails *)
Definition holds (b : list vector * vector) : Prop := forall s, total (map (at_side s) (fst b)) <= at_side s (snd b).
Definition packs (rails ts : list vector) : Prop :=
  exists bins, Permutation (map snd bins) rails /\ Forall holds bins /\ Permutation (concat (map fst bins)) ts.

Lemma packs_rails rails rails' ts : Permutation rails rails' -> packs rails ts -> packs rails' ts.
Proof. intros P (bins & A & B & C). exists bins. split; [now transitivity rails|auto]. Qed.

Lemma packs_chunks rails ts ts' : Permutation ts ts' -> packs rails ts -> packs rails ts'.
Proof. intros P (bins & A & B & C). exists bins. split; [auto|split; [auto|now transitivity ts]]. Qed.

(** the first chunk lies on some rail *)
Lemma packs_first rails t ts : packs rails (t :: ts) -> exists l r m, rails = l ++ r :: m /\ within t r = true /\
  packs (less r t :: l ++ m) ts.
Proof.
  intros (bins & A & B & C).
  assert (I : In t (concat (map fst bins))) by (apply (Permutation_in t (Permutation_sym C)); now left).
  apply in_concat in I. destruct I as (items & I & It). apply in_map_iff in I. destruct I as ([items' r] & E & Ib).
  simpl in E. subst items'. apply in_split in Ib. destruct Ib as (b1 & b2 & ->).
  apply in_split in It. destruct It as (u & v & ->).
  rewrite map_app in A. cbn [map snd] in A.
  assert (Ir : In r rails) by (apply (Permutation_in r A), in_elt).
  apply in_split in Ir. destruct Ir as (l & m & ->). exists l, r, m.
  apply Permutation_app_inv in A. rewrite <- map_app in A.
  pose proof (Forall_elt _ _ _ B) as Hb.
  assert (T : forall s, at_side s t + total (map (at_side s) (u ++ v)) <= at_side s r).
  { intros s. specialize (Hb s). cbn [fst snd] in Hb. rewrite !map_app, total_app in *. cbn [map] in Hb.
    rewrite total_cons in Hb. lia. }
  split; [reflexivity|]. split.
  - apply within_complete. intros s. specialize (T s). lia.
  - exists ((u ++ v, less r t) :: b1 ++ b2). split; [|split].
    + cbn [map snd]. now constructor.
    + constructor.
      * intros s. cbn [fst snd]. rewrite at_less. specialize (T s). lia.
      * apply Forall_app in B. destruct B as [B1 B2]. apply Forall_app. split; auto. now inversion_clear B2.
    + rewrite map_app, concat_app in C. cbn [map fst concat] in C. cbn [map fst concat].
      apply (Permutation_cons_inv (a := t)). rewrite <- C. rewrite map_app, concat_app.
      rewrite <- !app_assoc. cbn [app]. clear. 
      set (x := concat (map fst b1)). set (y := concat (map fst b2)).
      rewrite (app_assoc x u), (app_assoc u v), <- Permutation_middle. constructor.
      rewrite !app_assoc. apply Permutation_app_tail. rewrite <- !app_assoc.
      rewrite (app_assoc x u v). rewrite (app_assoc u v x). rewrite <- (app_assoc x u v). apply Permutation_app_comm.
Qed.

(** ** Sums to come *)

Definition speaks_of (sides : nat) (ts : list vector) (c : coming) : Prop :=
  length (sums c) = sides /\ (forall s, at_side s (needs c) = total (map (at_side s) ts)) /\
  forall s l m, (s < sides)%nat -> Permutation (l ++ m) ts -> N.testbit (at_side s (sums c)) (total (map (at_side s) l)) = true.

Lemma annotated_sound sides ts : speaks_of sides ts (snd (annotated sides ts)).
Proof.
  induction ts as [|t ts IH].
  - split; [apply repeat_length|]. split; [intros s; apply at_nil|]. intros s l m Hs P.
    apply Permutation_sym, Permutation_nil in P. apply app_eq_nil in P. destruct P as [-> ->].
    simpl. unfold at_side. rewrite (nth_indep _ 0 1), nth_repeat by (now rewrite repeat_length). reflexivity.
  - simpl. destruct (annotated sides ts) as [l c]. cbn [snd] in *. destruct IH as (L & Nd & T). split; [|split].
    + simpl. now rewrite shifted_length.
    + intros s. simpl. now rewrite at_plus, Nd.
    + intros s x y Hs P. cbn [sums]. rewrite at_shifted, N.lor_spec.
      assert (I : In t (x ++ y)) by (apply (Permutation_in t (Permutation_sym P)); now left).
      apply in_app_or in I. destruct I as [I|I]; apply in_split in I; destruct I as (u & v & ->).
      * rewrite <- app_assoc in P. simpl in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
        rewrite app_assoc in P. specialize (T s _ _ Hs P). rewrite map_app, total_app in *. cbn [map]. rewrite total_cons.
        rewrite N.shiftl_spec_high' by lia.
        replace (_ - _) with (total (map (at_side s) u) + total (map (at_side s) v)) by lia. rewrite T. apply orb_true_r.
      * rewrite app_assoc in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
        rewrite <- app_assoc in P. now rewrite (T s _ _ Hs P).
Qed.

Lemma useful_sound sides ts c rails : speaks_of sides ts c -> packs rails ts -> packs (map (useful (sums c)) rails) ts.
Proof.
  intros (L & _ & T) (bins & A & B & C). exists (map (fun b => (fst b, useful (sums c) (snd b))) bins). split; [|split].
  - rewrite map_map. cbn [snd]. rewrite <- (map_map snd (useful (sums c))). now apply Permutation_map.
  - apply Forall_map, Forall_forall. intros b Hb s. cbn [fst snd]. rewrite Forall_forall in B. specialize (B b Hb s).
    apply at_useful; [|exact B]. rewrite L. intros Hs. apply in_split in Hb. destruct Hb as (b1 & b2 & ->).
    apply (T s (fst b) (concat (map fst b1) ++ concat (map fst b2)) Hs). rewrite <- C, map_app, concat_app. cbn [map concat].
    rewrite !app_assoc. apply Permutation_app_tail, Permutation_app_comm.
  - rewrite map_map. cbn [fst]. exact C.
Qed.

Lemma enough_sound sides ts c rails : speaks_of sides ts c -> packs rails ts -> enough c rails = true.
Proof.
  intros (_ & Nd & _) (bins & A & B & C). apply within_complete. intros s. rewrite Nd, at_all.
  rewrite <- (total_perm _ _ (Permutation_map (at_side s) A)), <- (total_perm _ _ (Permutation_map (at_side s) C)).
  clear - B. induction B as [|b bins Hb B IH]; [reflexivity|]. cbn [map concat]. rewrite map_app, total_app, total_cons.
  specialize (Hb s). lia.
Qed.

(** ** Soundness *)

Lemma tries_sound f t : forall l r m before, within t r = true ->
  exists w, In w (tries f t before (map (fun r => (r, f r)) (l ++ r :: m))) /\
    Permutation w (f (less r t) :: before ++ map f (l ++ m)).
Proof.
  induction l as [|x l IH]; intros r m before W.
  - revert before. induction m as [|n m IHm]; intros before.
    + cbn [app map tries]. rewrite W. eexists. split; [now left|]. cbn [map].
      rewrite rev_append_rev, !app_nil_r. constructor. symmetry. apply Permutation_rev.
    + cbn [app map]. cbn [tries]. destruct (by_number r n) eqn:E.
      1: { assert (r = n) as <- by (apply (lex_eq N.compare); [apply N.compare_eq|exact E]).
           destruct (IHm (f r :: before)) as (w & I & P). exists w. split; [exact I|]. rewrite P. constructor.
           cbn [app map]. apply Permutation_middle. }
      all: rewrite W; eexists; (split; [now left|]); cbn [map snd]; rewrite rev_append_rev, map_map; cbn [snd]; constructor;
        apply Permutation_app; [symmetry; apply Permutation_rev|reflexivity].
  - cbn [app map]. cbn [tries]. destruct (IH r m (f x :: before) W) as (w & I & P). exists w. split.
    + match goal with |- In w (if ?b then _ else _) => destruct b end; [exact I|]. destruct (within t x); [now right|exact I].
    + rewrite P. constructor. cbn [app map]. apply Permutation_middle.
Qed.

Lemma different_sound w : forall ways, In w ways -> In w (different ways).
Proof.
  induction ways as [|x ways IH]; [easy|]. intros H. destruct ways as [|v rest]; [exact H|].
  cbn [different] in *. destruct (by_rail x v) eqn:E.
  1: { destruct H as [->|H]; [|now apply IH]. apply IH. left. symmetry. revert E. apply lex_eq. intros a b.
       apply lex_eq, N.compare_eq. }
  all: destruct H as [->|H]; [now left|right; now apply IH].
Qed.

Lemma after_sound sides t ts c way : speaks_of sides ts c -> packs way (t :: ts) ->
  exists w, In w (after t c way) /\ packs w ts.
Proof.
  intros S P. apply packs_first in P. destruct P as (l & r & m & -> & W & P).
  destruct (tries_sound (useful (sums c)) t l r m [] W) as (w & I & Pw).
  assert (Q : packs w ts).
  { eapply packs_rails; [symmetry; exact Pw|]. exact (useful_sound sides ts c (less r t :: l ++ m) S P). }
  exists (Rails_sort.sort w). split.
  - unfold after. apply in_map, filter_In. split; [exact I|]. eapply enough_sound; eauto.
  - eapply packs_rails; [apply Rails_sort.Permuted_sort|exact Q].
Qed.

Lemma search_sound sides ts : forall ways, search (fst (annotated sides ts)) ways = true ->
  forall way, In way ways -> ~ packs way ts.
Proof.
  induction ts as [|t ts IH]; intros ways H way I P.
  - destruct ways; [easy|discriminate].
  - destruct ways as [|w0 ways]; [easy|]. remember (w0 :: ways) as all.
    simpl annotated in H. destruct (annotated sides ts) as [l c] eqn:E.
    pose proof (annotated_sound sides ts) as S. rewrite E in S. cbn [fst snd] in *.
    rewrite Heqall in H. cbn [search] in H. rewrite <- Heqall in H.
    destruct (forallb _ t); [discriminate|].
    destruct (after_sound sides t ts c way S P) as (w & Iw & Pw).
    apply (IH _ H w); [|exact Pw]. apply different_sound.
    apply (Permutation_in w (Ways_sort.Permuted_sort _)). apply in_flat_map. now exists way.
Qed.

Lemma by_joint_sound rails ts : by_joint rails ts = true -> ~ packs rails ts.
Proof.
  intros H P. apply (search_sound _ _ _ H (Rails_sort.sort rails)); [now left|].
  eapply packs_rails; [apply Rails_sort.Permuted_sort|]. eapply packs_chunks; [apply Takes_sort.Permuted_sort|exact P].
Qed.

(** ** The fabric: which sides, what chunks take there, what room a time short of p/q leaves *)

Definition place : Type := side * nat.
Definition touches (z : place) (c : chunk) : bool := (key_of (fst z) c =? snd z)%nat.
Definition taken (g : N) (sides : list place) (c : chunk) : vector :=
  map (fun z => if touches z c then size c / g else 0) sides.
Definition rooms (g p q : N) (tx rx : list (list N)) (sides : list place) (n : nat) : vector :=
  map (fun z => room p q (rate (match fst z with Send => tx | Receive => rx end) (snd z) n) / g) sides.

Definition check_joint (sides : list place) (M R : nat) (tx rx : list (list N)) (cs : list chunk) (p : N) (q : positive) : bool :=
  let g := common (map size cs) in
  (0 <? g) && forallb (fun z => (snd z <? M)%nat) sides
  && by_joint (map (rooms g p (Npos q) tx rx sides) (seq 0 R)) (map (taken g sides) cs).

Lemma at_map {A} (f : A -> N) l s : at_side s (map f l) = match nth_error l s with Some z => f z | None => 0 end.
Proof. revert s. induction l as [|x l IH]; intros [|s]; try reflexivity. apply IH. Qed.

Lemma taken_total g z xs : g <> 0 -> (forall c, In c xs -> (g | size c)) ->
  g * total (map (fun c => if touches z c then size c / g else 0) xs) = total (map size (filter (touches z) xs)).
Proof.
  intros Hg. induction xs as [|c xs IH]; intros D; [apply N.mul_0_r|]. specialize (IH (fun c H => D c (or_intror H))).
  cbn [map filter]. rewrite total_cons, N.mul_add_distr_l, IH. destruct (touches z c); [|lia].
  cbn [map]. rewrite total_cons. destruct (D c (or_introl eq_refl)) as [k ->]. rewrite N.div_mul by assumption. lia.
Qed.

Theorem T7_joint_sound : forall sides M R tx rx cs p q, check_joint sides M R tx rx cs p q = true ->
  forall rail t, is_plan R cs rail -> on_time M R tx rx cs rail t -> ((Z.of_N p # q) <= t)%Q.
Proof.
  unfold check_joint. intros sides M R tx rx cs p q H rail t [L F] T. set (g := common (map size cs)) in *.
  apply andb_prop in H. destruct H as [H J]. apply andb_prop in H. destruct H as [Hg HM]. apply N.ltb_lt in Hg.
  rewrite forallb_forall in HM. destruct (Qlt_le_dec t (Z.of_N p # q)) as [Hlt|]; auto. exfalso.
  apply (by_joint_sound _ _ J).
  exists (map (fun n => (on n (map (taken g sides) cs) rail, rooms g p (Npos q) tx rx sides n)) (seq 0 R)). split; [|split].
  - rewrite map_map. reflexivity.
  - apply Forall_map, Forall_forall. intros n Hn s. apply in_seq in Hn. cbn [fst snd]. rewrite on_map, map_map.
    unfold taken, rooms, place in *. rewrite at_map. rewrite (map_ext _ _ (fun c => at_map _ sides s)).
    destruct (nth_error sides s) as [z|] eqn:E.
    2: { induction (on n cs rail); [reflexivity|]. cbn [map]. now rewrite total_cons. }
    specialize (HM z (nth_error_In _ _ E)). apply Nat.ltb_lt in HM.
    specialize (T (snd z) n HM ltac:(lia)). apply N.div_le_lower_bound; [lia|].
    rewrite taken_total; [|lia|].
    + change (total _) with (bytes (key_of (fst z)) cs rail (snd z) n).
      eapply before_room; [exact Hlt|]. destruct z as [[|] k]; apply T.
    + intros c Hc. apply common_divides, in_map. eapply on_In; eauto.
  - rewrite map_map. cbn [fst]. apply rails_perm; [now rewrite map_length|exact F].
Qed.
