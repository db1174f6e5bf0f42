(** * T7, second half: witnesses that weigh (integer dual), and sums of jobs

    A rail's best weight within its room is a knapsack problem; its dynamic program runs
    here on the list of undominated (bytes, weight) pairs. *)
From Coq Require Import Arith NArith Lia List Bool Permutation.
From Rails Require Import Jobs Counting.
Import ListNotations.
Open Scope N_scope.

(** ** The undominated pairs of a list of (size, weight) items *)

Definition item : Type := N * N.
Definition beats (b x : item) : bool := (fst b <=? fst x) && (snd x <=? snd b).

(** merge two lists by size; [b] is the last pair kept, what it beats is dropped *)
Fixpoint merge (l : list item) : list item -> item -> list item :=
  fix inner (m : list item) (b : item) : list item :=
    match l, m with
    | [], [] => []
    | [], y :: m' => if beats b y then inner m' b else y :: inner m' y
    | x :: l', [] => if beats b x then merge l' [] b else x :: merge l' [] x
    | x :: l', y :: m' =>
        if fst x <=? fst y
        then if beats b x then merge l' m b else x :: merge l' m x
        else if beats b y then inner m' b else y :: inner m' y
    end.

(** every pair of [l] with one more item, as long as it fits in room [c] *)
Definition shift (c : N) (x : item) (l : list item) : list item :=
  filter (fun y => fst y <=? c) (map (fun y => (fst y + fst x, snd y + snd x)) l).

Fixpoint frontier (c : N) (xs : list item) : list item :=
  match xs with
  | [] => [(0, 0)]
  | x :: xs =>
      let l := frontier c xs in
      if snd x =? 0 then l else (0, 0) :: merge l (shift c x l) (0, 0)
  end.

(** ** The best weight within a room: a pair of either half of the items, one of them found in a tree *)

Inductive heap := Pair (x : item) | Pairs (low high heavy : N) (a b : heap).
Definition low_of (t : heap) : N := match t with Pair x => fst x | Pairs l _ _ _ _ => l end.
Definition high_of (t : heap) : N := match t with Pair x => fst x | Pairs _ h _ _ _ => h end.
Definition heavy_of (t : heap) : N := match t with Pair x => snd x | Pairs _ _ w _ _ => w end.
Definition two (a b : heap) : heap :=
  Pairs (N.min (low_of a) (low_of b)) (N.max (high_of a) (high_of b)) (N.max (heavy_of a) (heavy_of b)) a b.
Fixpoint by_two (l : list heap) : list heap := match l with a :: b :: rest => two a b :: by_two rest | _ => l end.
Fixpoint heaped (fuel : list item) (l : list heap) : list heap :=
  match fuel, l with _ :: fuel, _ :: _ :: _ => heaped fuel (by_two l) | _, _ => l end.

Fixpoint heaviest_in (t : heap) (c : N) : N :=
  match t with
  | Pair x => if fst x <=? c then snd x else 0
  | Pairs l h w a b => if c <? l then 0 else if h <=? c then w else N.max (heaviest_in a c) (heaviest_in b c)
  end.

Fixpoint halved (xs a b : list item) : list item * list item :=
  match xs with [] => (a, b) | x :: xs => halved xs b (x :: a) end.

(** pairs of one half, and trees of pairs of the other *)
Definition halves (c : N) (xs : list item) : list item * list heap :=
  let (a, b) := halved xs [] [] in
  let l := frontier c b in (frontier c a, heaped l (map Pair l)).

Definition best (f : list item * list heap) (c : N) : N :=
  fold_right (fun x v =>
    if fst x <=? c
    then fold_right (fun t v => N.max (snd x + heaviest_in t (c - fst x)) v) v (snd f)
    else v) 0 (fst f).

Definition by_dual (caps : list N) (xs : list item) : bool :=
  let f := halves (fold_right N.max 0 caps) xs in
  total (map (best f) caps) <? total (map snd xs).

(** ** Soundness: whatever fits is beaten by some pair of the frontier *)

Definition covered (l : list item) (x : item) : Prop := exists b, In b l /\ beats b x = true.

Lemma beats_spec b x : beats b x = true <-> fst b <= fst x /\ snd x <= snd b.
Proof. unfold beats. rewrite andb_true_iff, !N.leb_le. tauto. Qed.

Lemma covered_cons a l x : covered l x -> covered (a :: l) x.
Proof. intros (b & H & B). exists b. split; [now right|auto]. Qed.

Lemma covered_self l x : covered (x :: l) x.
Proof. exists x. split; [now left|]. apply beats_spec. lia. Qed.

Lemma merge_covers : forall l m b x, In x (b :: l ++ m) -> covered (b :: merge l m b) x.
Proof.
  assert (Keep : forall b y x z, covered (y :: z) x -> covered (b :: y :: z) x)
    by (intros; now apply covered_cons).
  assert (Drop : forall b y z, beats b y = true -> covered (b :: z) y)
    by (intros b y z H; exists b; split; [now left|auto]).
  induction l as [|a l IHl].
  - induction m as [|y m IHm]; intros b x H.
    + destruct H as [->|[]]. apply covered_self.
    + simpl in H. destruct H as [->|H]; [apply covered_self|]. simpl merge.
      destruct (beats b y) eqn:B.
      * destruct H as [->|H]; [now apply Drop|apply IHm; now right].
      * destruct H as [->|H]; [apply Keep, covered_self|apply Keep, IHm; now right].
  - induction m as [|y m IHm]; intros b x H.
    + destruct H as [->|H]; [apply covered_self|]. simpl in H. simpl merge.
      destruct (beats b a) eqn:B.
      * destruct H as [->|H]; [now apply Drop|apply IHl; now right].
      * destruct H as [->|H]; [apply Keep, covered_self|apply Keep, IHl; now right].
    + destruct H as [->|H]; [apply covered_self|]. simpl in H.
      change (merge (a :: l) (y :: m) b) with
        (if fst a <=? fst y
         then if beats b a then merge l (y :: m) b else a :: merge l (y :: m) a
         else if beats b y then merge (a :: l) m b else y :: merge (a :: l) m y).
      destruct (fst a <=? fst y).
      * destruct (beats b a) eqn:B.
        -- destruct H as [->|H]; [now apply Drop|apply IHl; now right].
        -- destruct H as [->|H]; [apply Keep, covered_self|apply Keep, IHl; now right].
      * assert (H' : x = y \/ In x (a :: l ++ m)).
        { destruct H as [->|H]; [right; now left|]. apply in_app_or in H.
          destruct H as [H|[->|H]]; [right; right; apply in_or_app; now left|now left|].
          right; right; apply in_or_app; now right. }
        destruct (beats b y) eqn:B.
        -- destruct H' as [->|H']; [now apply Drop|apply IHm; now right].
        -- destruct H' as [->|H']; [apply Keep, covered_self|apply Keep, IHm; now right].
Qed.

Lemma beats_trans a b x : beats a b = true -> beats b x = true -> beats a x = true.
Proof. rewrite !beats_spec. lia. Qed.

Definition weigh (t : list item) : item := (total (map fst t), total (map snd t)).

Lemma frontier_covers c xs t : sub t xs -> fst (weigh t) <= c -> covered (frontier c xs) (weigh t).
Proof.
  intros S. induction S as [|x t l S IH|x t l S IH]; intros Hc; simpl frontier.
  - apply covered_self.
  - specialize (IH Hc). destruct (snd x =? 0); auto. destruct IH as (b & Hb & B).
    destruct (merge_covers (frontier c l) (shift c x (frontier c l)) (0, 0) b) as (d & Hd & D).
    { right. apply in_or_app. now left. }
    exists d. split; auto. eapply beats_trans; eauto.
  - unfold weigh in *. simpl map in *. rewrite !total_cons in *. cbn [fst snd] in *.
    destruct IH as (b & Hb & B); [lia|]. apply beats_spec in B. cbn [fst snd] in B.
    destruct (N.eqb_spec (snd x) 0) as [E|_].
    + exists b. split; auto. apply beats_spec. cbn [fst snd]. lia.
    + destruct (merge_covers (frontier c l) (shift c x (frontier c l)) (0, 0) (fst b + fst x, snd b + snd x))
        as (d & Hd & D).
      { right. apply in_or_app. right. unfold shift. apply filter_In. split.
        - apply in_map_iff. now exists b.
        - cbn [fst snd]. apply N.leb_le. lia. }
      exists d. split; auto. eapply beats_trans; [exact D|]. apply beats_spec. cbn [fst snd]. lia.
Qed.

Fixpoint in_heap (x : item) (t : heap) : Prop :=
  match t with
  | Pair y => y = x
  | Pairs l h w a b => l <= fst x <= h /\ snd x <= w /\ (in_heap x a \/ in_heap x b)
  end.

Lemma in_heap_range x t : in_heap x t -> low_of t <= fst x <= high_of t /\ snd x <= heavy_of t.
Proof. destruct t; simpl; [intros ->; lia|tauto]. Qed.

Lemma heaviest_ge x t c : in_heap x t -> fst x <= c -> snd x <= heaviest_in t c.
Proof.
  intros H Hc. induction t as [y|l h w a IHa b IHb]; simpl in *.
  - subst y. apply N.leb_le in Hc. rewrite Hc. reflexivity.
  - destruct H as (R & W & H). destruct (N.ltb_spec c l); [lia|]. destruct (h <=? c); [exact W|].
    destruct H as [H|H]; [specialize (IHa H)|specialize (IHb H)]; lia.
Qed.

Lemma by_two_In x : forall l, Exists (in_heap x) l -> Exists (in_heap x) (by_two l).
Proof.
  assert (G : forall n l, (length l <= n)%nat -> Exists (in_heap x) l -> Exists (in_heap x) (by_two l)).
  { induction n as [|n IH]; intros [|a [|b l]] L H; simpl in L; try lia; auto. cbn [by_two].
    assert (T : in_heap x a \/ in_heap x b -> in_heap x (two a b)).
    { intros T. cbn [two in_heap]. split; [|split; [|exact T]]; destruct T as [T|T]; apply in_heap_range in T; lia. }
    inversion_clear H as [? ? H1|? ? H1]; [left; apply T; now left|].
    inversion_clear H1 as [? ? H2|? ? H2]; [left; apply T; now right|right]. apply IH; [lia|exact H2]. }
  intros l. now apply (G (length l)).
Qed.

Lemma heaped_In x : forall fuel l, Exists (in_heap x) l -> Exists (in_heap x) (heaped fuel l).
Proof.
  induction fuel as [|f fuel IH]; intros l H; [exact H|]. cbn [heaped]. destruct l as [|a [|b l]]; auto. apply IH, by_two_In, H.
Qed.

Lemma sub_halved : forall xs t a b u v, sub t xs -> sub u a -> sub v b -> exists u' v',
  sub u' (fst (halved xs a b)) /\ sub v' (snd (halved xs a b)) /\
  fst (weigh u') + fst (weigh v') = fst (weigh t) + fst (weigh u) + fst (weigh v) /\
  snd (weigh u') + snd (weigh v') = snd (weigh t) + snd (weigh u) + snd (weigh v).
Proof.
  unfold weigh. cbn [fst snd]. intros xs t a b u v S. revert a b u v.
  induction S as [|x t l S IH|x t l S IH]; intros a b u v U V; cbn [halved].
  - exists u, v. cbn [map total fold_right]. repeat split; auto; lia.
  - destruct (IH b (x :: a) v u V (sub_skip _ _ _ U)) as (u' & v' & A & B & C & D). exists u', v'. repeat split; auto; lia.
  - destruct (IH b (x :: a) v (x :: u) V (sub_take _ _ _ U)) as (u' & v' & A & B & C & D). exists u', v'.
    cbn [map] in *. rewrite !total_cons in *. repeat split; auto; lia.
Qed.

Lemma best_ge top xs t c : sub t xs -> fst (weigh t) <= c -> c <= top -> snd (weigh t) <= best (halves top xs) c.
Proof.
  intros S Hc Ht. destruct (sub_halved xs t [] [] [] [] S sub_nil sub_nil) as (u & v & U & V & F & G).
  unfold halves. destruct (halved xs [] []) as [a b]. cbn [fst snd] in U, V. change (weigh []) with (0, 0) in F, G. cbn [fst snd] in F, G.
  destruct (frontier_covers top a u U) as (x & Hx & Bx); [unfold item in *; lia|].
  destruct (frontier_covers top b v V) as (y & Hy & By); [unfold item in *; lia|].
  apply beats_spec in Bx, By. set (l := frontier top b) in *.
  assert (Hh : Exists (in_heap y) (heaped l (map Pair l))).
  { apply heaped_In, Exists_exists. exists (Pair y). split; [now apply in_map|reflexivity]. }
  apply Exists_exists in Hh. destruct Hh as (h & Hh & Iy). unfold best. cbn [fst snd].
  assert (W : snd (weigh t) <= snd x + heaviest_in h (c - fst x)).
  { pose proof (heaviest_ge y h (c - fst x) Iy). lia. }
  assert (Mono : forall (z : item) hs v, v <= fold_right (fun t v => N.max (snd z + heaviest_in t (c - fst z)) v) v hs).
  { intros z. induction hs as [|t' hs IH]; intros v'; cbn [fold_right]; [lia|]. specialize (IH v'). lia. }
  assert (One : forall hs v, In h hs -> snd x + heaviest_in h (c - fst x) <= fold_right (fun t v => N.max (snd x + heaviest_in t (c - fst x)) v) v hs).
  { induction hs as [|t' hs IH]; intros v' H; [contradiction|]. cbn [fold_right]. destruct H as [->|H]; [lia|]. specialize (IH v' H). lia. }
  clear - W Hx Hh One Mono F Bx Hc.
  assert (Fx : fst x <= c) by lia. apply N.leb_le in Fx. induction (frontier top a) as [|z zs IH]; [contradiction|]. cbn [fold_right].
  destruct Hx as [->|Hx].
  - rewrite Fx. etransitivity; [exact W|]. now apply One.
  - specialize (IH Hx). destruct (fst z <=? c); [|exact IH]. etransitivity; [exact IH|]. apply Mono.
Qed.

Lemma room_max c caps : In c caps -> c <= fold_right N.max 0 caps.
Proof. induction caps as [|d caps IH]; [easy|]. intros [->|H]; simpl; [lia|]. specialize (IH H). lia. Qed.

Theorem T7_dual_sound : forall caps xs, by_dual caps xs = true -> refuted caps (map fst xs).
Proof.
  unfold by_dual. intros caps xs H. apply N.ltb_lt in H.
  eapply (outweighed fst snd); [|exact H]. intros t c S Hc Ht. exact (best_ge _ xs t c S Ht (room_max c caps Hc)).
Qed.

(** ** Subset sums as the bits of one number *)

Fixpoint bits (c : N) (ps : list N) : N :=
  match ps with
  | [] => 1
  | p :: ps =>
      let b := bits c ps in
      if c <? p then b else N.land (N.lor b (N.shiftl b p)) (N.ones (c + 1))
  end.

(** the largest subset sum within room [c] *)
Definition fullest (b c : N) : N := N.log2 (N.land b (N.ones (c + 1))).

Lemma bits_sound c ps t : sub t ps -> total t <= c -> N.testbit (bits c ps) (total t) = true.
Proof.
  intros S. induction S as [|p t l S IH|p t l S IH]; intros Hc; simpl bits; [reflexivity| |].
  - specialize (IH Hc). destruct (c <? p); auto.
    rewrite N.land_spec, N.lor_spec, IH, N.ones_spec_low by lia. reflexivity.
  - rewrite total_cons in *. destruct (N.ltb_spec c p); [lia|].
    rewrite N.land_spec, N.lor_spec, N.ones_spec_low, N.shiftl_spec_high' by lia.
    replace (p + total t - p) with (total t) by lia. rewrite IH by lia. now rewrite orb_true_r.
Qed.

Lemma fullest_ge b c x : N.testbit b x = true -> x <= c -> x <= fullest b c.
Proof.
  intros H Hx. unfold fullest. destruct (N.le_gt_cases x (N.log2 (N.land b (N.ones (c + 1))))) as [|Hlt]; auto.
  apply N.bits_above_log2 in Hlt. rewrite N.land_spec, H, N.ones_spec_low in Hlt by lia. discriminate.
Qed.
