(** * T7, last resort: follow every way to fill the rails to its dead end

    Equal jobs are of one kind, rails of equal room too; a stock says how many of each are left.
    The first job of a stock lies on some rail, in some load of that rail: take every such load
    away, and go on with the stocks that this leaves, each once, until none is left (then there is
    no plan) or one without jobs (a plan).

    Not every set of jobs is a load.  All rails together may waste no more than their rooms exceed
    the sizes.  No load is tried that would be better with a job that is left: there is a plan with
    the better one too. *)
From Coq Require Import Arith NArith Lia List Bool Permutation Mergesort Orders.
From Rails Require Import Jobs Counting Weights.
Import ListNotations.
Open Scope N_scope.

(** ** Lists of numbers, in an order *)

Fixpoint lex {A} (cmp : A -> A -> comparison) (l m : list A) : comparison :=
  match l, m with
  | [], [] => Eq
  | [], _ => Lt
  | _, [] => Gt
  | x :: l, y :: m => match cmp x y with Eq => lex cmp l m | c => c end
  end.
Definition at_most (c : comparison) : bool := match c with Gt => false | _ => true end.

Lemma lex_opp {A} (cmp : A -> A -> comparison) : (forall x y, cmp x y = CompOpp (cmp y x)) ->
  forall l m, lex cmp l m = CompOpp (lex cmp m l).
Proof.
  intros H. induction l as [|x l IH]; intros [|y m]; try reflexivity. simpl. rewrite (H x y).
  destruct (cmp y x); simpl; auto.
Qed.

Lemma lex_eq {A} (cmp : A -> A -> comparison) : (forall x y, cmp x y = Eq -> x = y) ->
  forall l m, lex cmp l m = Eq -> l = m.
Proof.
  intros H. induction l as [|x l IH]; intros [|y m] E; try discriminate; [reflexivity|]. simpl in E.
  destruct (cmp x y) eqn:C; try discriminate. f_equal; auto.
Qed.

Lemma total_order {A} (cmp : A -> A -> comparison) x y : cmp x y = CompOpp (cmp y x) ->
  at_most (cmp x y) = true \/ at_most (cmp y x) = true.
Proof. intros E. rewrite E. destruct (cmp y x); simpl; auto. Qed.

Module Descending <: TotalLeBool.
  Definition t := N.
  Definition leb (x y : N) : bool := (y <=? x)%N.
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. unfold leb. destruct (N.leb_spec y x), (N.leb_spec x y); auto; lia. Qed.
End Descending.
Module Descend := Sort Descending.

(** ** Stocks: how many rails of each room, how many jobs of each size *)

Definition stock : Type := list N * list N.

Fixpoint expand (ks ns : list N) : list N :=
  match ks, ns with k :: ks, n :: ns => repeat k (N.to_nat n) ++ expand ks ns | _, _ => [] end.
Fixpoint dot (ks ns : list N) : N :=
  match ks, ns with k :: ks, n :: ns => k * n + dot ks ns | _, _ => 0 end.

Definition by_stock (x y : stock) : comparison :=
  match lex N.compare (snd x) (snd y) with Eq => lex N.compare (fst x) (fst y) | c => c end.

Lemma by_stock_opp x y : by_stock x y = CompOpp (by_stock y x).
Proof.
  unfold by_stock. rewrite (lex_opp N.compare (fun x y => N.compare_antisym y x) (snd x) (snd y)).
  rewrite (lex_opp N.compare (fun x y => N.compare_antisym y x) (fst x) (fst y)).
  destruct (lex N.compare (snd y) (snd x)); reflexivity.
Qed.

Module Stock_order <: TotalLeBool.
  Definition t := stock.
  Definition leb (x y : t) : bool := at_most (by_stock x y).
  Lemma leb_total : forall x y, leb x y = true \/ leb y x = true.
  Proof. intros x y. apply total_order, by_stock_opp. Qed.
End Stock_order.
Module Stock_sort := Sort Stock_order.

Fixpoint once (l : list stock) : list stock :=
  match l with
  | x :: ((y :: _) as rest) => match by_stock x y with Eq => once rest | _ => x :: once rest end
  | _ => l
  end.
Definition distinct (l : list stock) : list stock := once (Stock_sort.sort l).

(** ** Sums that jobs can have, as a tree: whether one lies in a window *)

Inductive sums := One (x : N) | Both (low high : N) (a b : sums).
Definition low (t : sums) : N := match t with One x => x | Both l _ _ _ => l end.
Definition high (t : sums) : N := match t with One x => x | Both _ h _ _ => h end.
Definition both (a b : sums) : sums := Both (N.min (low a) (low b)) (N.max (high a) (high b)) a b.

Fixpoint meets (t : sums) (least most : N) : bool :=
  match t with
  | One x => (least <=? x) && (x <=? most)
  | Both l h a b => if (h <? least) || (most <? l) then false else meets a least most || meets b least most
  end.

Fixpoint paired (l : list sums) : list sums :=
  match l with a :: b :: rest => both a b :: paired rest | _ => l end.
Fixpoint treed (fuel : list N) (l : list sums) : option sums :=
  match l, fuel with
  | [t], _ => Some t
  | _, _ :: fuel => treed fuel (paired l)
  | _, [] => None
  end.

(** what is in either list, in order if they are *)
Fixpoint union (l : list N) : list N -> list N :=
  fix inner (m : list N) : list N :=
    match l, m with
    | [], _ => m
    | _, [] => l
    | x :: l', y :: m' =>
        match x ?= y with Lt => x :: union l' m | Eq => x :: union l' m' | Gt => y :: inner m' end
    end.
Fixpoint with_jobs (room s : N) (n : nat) (l : list N) : list N :=
  match n with
  | O => l
  | S n => with_jobs room s n (union l (filter (fun x => x <=? room) (map (fun x => x + s) l)))
  end.

Fixpoint longer (l : list N) (n : N) : bool := match l with [] => false | _ :: l => if n =? 0 then true else longer l (n - 1) end.
Definition most_sums : N := 2000.

(** ** Loads, kind by kind: none of a kind, or one more of it *)

(** a kind of jobs: size, how many there are, and the sums of it and of the kinds after it *)
Record kind := Kind { job : N; many : N; sums_from : option sums }.

Fixpoint prepared (top : N) (zs : list (N * N)) : list kind * option (list N) :=
  match zs with
  | [] => ([], Some [0])
  | (x, n) :: zs =>
      let (ks, sums) := prepared top zs in
      let sums := match sums with
        | Some l => if longer l most_sums then None else Some (with_jobs top x (N.to_nat (N.min n (top / x))) l)
        | None => None
        end in
      (Kind x n (match sums with Some l => treed l (map One l) | None => None end) :: ks, sums)
  end.

(** what is left of a kind; bytes of it and of the kinds after it *)
Record entry := Entry { what : N; left : nat; bytes_from : N; reach_from : option sums }.

(** [fine]: no more than there were when the sums were made *)
Fixpoint entries (ks : list kind) (ns : list N) : list entry * bool :=
  match ks, ns with
  | k :: ks, n :: ns =>
      let (l, fine) := entries ks ns in
      let fine := fine && (n <=? many k) in
      let b := match l with e :: _ => bytes_from e | [] => 0 end in
      (Entry (job k) (N.to_nat n) (job k * n + b) (if fine then sums_from k else None) :: l, fine)
  | _, _ => ([], true)
  end.

Definition hopeless (e : entry) (room need : N) : bool :=
  (bytes_from e <? need) || match reach_from e with Some t => negb (meets t need room) | None => false end.

(** [least] of all that it has waste so much, or more *)
Inductive loads := Nothing | Done (waste : N) (bars : list bool) | Choose (least : N) (none one : loads).
Definition least_of (t : loads) : N := match t with Nothing => 0 | Done w _ => w | Choose w _ _ => w end.
Definition joined (a b : loads) : loads :=
  match a, b with
  | Nothing, Nothing => Nothing
  | Done _ _, Nothing => a
  | _, Nothing => Choose (least_of a) a b
  | Nothing, _ => Choose (least_of b) a b
  | _, _ => Choose (N.min (least_of a) (least_of b)) a b
  end.

(** the kinds of which none may be left beside a load: one would fit in place of one of [taken] *)
Definition bars (ks : list kind) (taken : list N) (waste : N) : list bool :=
  map (fun k => existsb (fun s => (s <? job k) && (job k <=? s + waste)) taken) ks.

(** loads of at most [room] and at least [need] bytes *)
Fixpoint listed (ks : list kind) (l : list entry) (room need : N) (taken : list N) : loads :=
  match l with
  | [] => if need =? 0 then Done room (bars ks taken room) else Nothing
  | e :: rest =>
      (fix more (n : nat) (room need : N) (taken : list N) : loads :=
         if hopeless e room need then Nothing
         else joined (listed ks rest room need taken)
                (match n with
                 | O => Nothing
                 | S n =>
                     if what e <=? room
                     then more n (room - what e) (need - what e) (what e :: taken)
                     else Nothing
                 end))
      (left e) room need taken
  end.

Fixpoint barred (bars : list bool) (ns : list N) : bool :=
  match bars, ns with b :: bars, n :: ns => (b && (0 <? n)) || barred bars ns | _, _ => false end.

(** what is left of [ns] without each of the loads *)
Fixpoint without (t : loads) (slack : N) (ns before : list N) (found : list (list N)) : list (list N) :=
  match t with
  | Nothing => found
  | Done waste bars =>
      if waste <=? slack
      then let ns := rev_append before ns in if barred bars ns then found else ns :: found
      else found
  | Choose least a b =>
      if slack <? least then found
      else match ns with
           | [] => found
           | n :: rest =>
               let found := without a slack rest (n :: before) found in
               if n =? 0 then found else without b slack (n - 1 :: rest) before found
           end
  end.

(** ** The search: [true] means that no stock is left *)

Definition some_at (i : nat) (ns : list N) : bool := 0 <? nth i ns 0.
Fixpoint less_one (i : nat) (ns : list N) : list N :=
  match ns, i with [], _ => [] | n :: ns, O => n - 1 :: ns | n :: ns, S i => n :: less_one i ns end.
Fixpoint highest (l m : list N) : list N :=
  match l, m with x :: l, y :: m => N.max x y :: highest l m | [], _ => m | _, [] => l end.

(** a stock, and what its rails may waste of room *)
Definition waiting : Type := stock * N.
Definition spared (rs : list N) (ks : list kind) (x : stock) : waiting :=
  (x, dot rs (fst x) - dot (map job ks) (snd x)).

(** the first job, of kind [k], on a rail of the [i]-th kind [r], in every way *)
Definition with_first (ks : list kind) (k r : N) (i : nat) (l : list waiting) : list stock :=
  let most := fold_right (fun (x : waiting) ns => highest (snd (fst x)) ns) [] l in
  let slack := fold_right (fun (x : waiting) v => N.max (snd x) v) 0 l in
  let t := listed ks (fst (entries ks (less_one 0 most))) (r - k) (r - k - slack) [0] in
  flat_map (fun x : waiting => map (fun ns => (less_one i (fst (fst x)), ns))
    (without t (snd x) (less_one 0 (snd (fst x))) [] [])) l.
Definition on_rail (ks : list kind) (k : N) (l : list waiting) (r : N) (i : nat) : list stock :=
  if r <? k then [] else with_first ks k r i (filter (fun x : waiting => some_at i (fst (fst x))) l).

Definition next (rs : list N) (ks : list kind) (k : N) (l : list stock) : list stock :=
  let l := map (spared rs ks) l in
  flat_map (fun z => on_rail ks k l (fst z) (snd z)) (combine rs (seq 0 (length rs))).

(** until no job of kind [k], the first of [ks], is left: each round takes one of a stock, or more *)
Fixpoint emptied (rounds : nat) (rs : list N) (ks : list kind) (k : N) (l : list stock) : list stock :=
  match rounds with
  | O => l
  | S rounds =>
      let here := filter (fun x : stock => some_at 0 (snd x)) l in
      let later := filter (fun x : stock => negb (some_at 0 (snd x))) l in
      match here with [] => later | _ => emptied rounds rs ks k (distinct (next rs ks k here ++ later)) end
  end.

Fixpoint search (rs : list N) (ks : list kind) (l : list stock) : bool :=
  match l, ks with
  | [], _ => true
  | _, [] => false
  | _, k :: rest =>
      let l := emptied (N.to_nat (many k)) rs ks (job k) l in
      forallb (fun x => negb (some_at 0 (snd x))) l && search rs rest (map (fun x => (fst x, tl (snd x))) l)
  end.

(** equal neighbours counted *)
Fixpoint counted (l : list N) : list (N * N) :=
  match l with
  | [] => []
  | x :: l => match counted l with
              | (y, n) :: rest => if x =? y then (y, n + 1) :: rest else (x, 1) :: (y, n) :: rest
              | [] => [(x, 1)]
              end
  end.

(** rooms [caps], jobs [ps] *)
Definition by_cover (caps ps : list N) : bool :=
  let rails := counted (Descend.sort caps) in
  let jobs := counted ps in
  search (map fst rails) (fst (prepared (fold_right N.max 0 caps) jobs)) [(map snd rails, map snd jobs)].

(** ** Soundness *)

(** *** Sums *)

Fixpoint has_sum (t : sums) (x : N) : Prop :=
  match t with One y => y = x | Both l h a b => l <= x <= h /\ (has_sum a x \/ has_sum b x) end.

Lemma has_sum_range t x : has_sum t x -> low t <= x <= high t.
Proof. destruct t; simpl; [intros ->; lia|tauto]. Qed.

Lemma has_sum_both a b x : has_sum a x \/ has_sum b x -> has_sum (both a b) x.
Proof.
  intros H. split; [|exact H]. destruct H as [H|H]; apply has_sum_range in H; unfold both; lia.
Qed.

Lemma meets_complete t x least most : has_sum t x -> least <= x <= most -> meets t least most = true.
Proof.
  intros H Hx. induction t as [y|l h a IHa b IHb]; simpl in *.
  - subst. apply andb_true_intro. split; apply N.leb_le; lia.
  - destruct H as [R H]. destruct (N.ltb_spec h least); [lia|]. destruct (N.ltb_spec most l); [lia|]. simpl.
    apply orb_true_iff. destruct H; auto.
Qed.

Lemma paired_In l : forall x, Exists (fun t => has_sum t x) l -> Exists (fun t => has_sum t x) (paired l).
Proof.
  assert (G : forall n l, (length l <= n)%nat -> forall x, Exists (fun t => has_sum t x) l -> Exists (fun t => has_sum t x) (paired l)).
  { clear l. induction n as [|n IH]; intros [|a [|b l]] L x H; simpl in L; try lia; auto.
    simpl paired. inversion_clear H as [? ? H1|? ? H1]; [left; apply has_sum_both; now left|].
    inversion_clear H1 as [? ? H2|? ? H2]; [left; apply has_sum_both; now right|right]. apply IH; [lia|exact H2]. }
  intros x. now apply (G (length l)).
Qed.

Lemma treed_In fuel : forall l t x, treed fuel l = Some t -> Exists (fun t => has_sum t x) l -> has_sum t x.
Proof.
  induction fuel as [|f fuel IH]; intros [|a [|b l]] t x E H; simpl in E; try discriminate;
    try (injection E as <-; inversion_clear H as [? ? K|? ? K]; [exact K|inversion K]).
  - exact (IH _ _ _ E (paired_In _ _ H)).
  - exact (IH _ _ _ E (paired_In _ _ H)).
Qed.

Lemma union_In x : forall l m, In x l \/ In x m -> In x (union l m).
Proof.
  induction l as [|a l IHl].
  - intros [|b m] [[]|H]; exact H.
  - induction m as [|b m IHm]; intros H; [destruct H as [H|[]]; exact H|].
    change (union (a :: l) (b :: m)) with
      (match a ?= b with Lt => a :: union l (b :: m) | Eq => a :: union l m | Gt => b :: union (a :: l) m end).
    destruct (N.compare_spec a b) as [<-|_|_].
    + destruct H as [[->|H]|[->|H]]; [now left|right; apply IHl; now left|now left|right; apply IHl; now right].
    + destruct H as [[->|H]|H]; [now left|right; apply IHl; now left|right; apply IHl; now right].
    + destruct H as [H|[->|H]]; [right; apply IHm; now left|now left|right; apply IHm; now right].
Qed.

Lemma with_jobs_In room s : forall n l y j, In y l -> (j <= n)%nat -> y + s * N.of_nat j <= room ->
  In (y + s * N.of_nat j) (with_jobs room s n l).
Proof.
  induction n as [|n IH]; intros l y j Hy Hj R; simpl.
  - replace j with O by lia. now rewrite N.mul_0_r, N.add_0_r.
  - destruct j as [|j].
    + apply IH; [apply union_In; now left|lia|exact R].
    + replace (y + s * N.of_nat (S j)) with (y + s + s * N.of_nat j) in * by lia.
      apply IH; [|lia|exact R]. apply union_In. right. apply filter_In. split.
      * apply in_map_iff. now exists y.
      * apply N.leb_le. lia.
Qed.

(** *** Stocks as lists of jobs *)

Lemma total_repeat s c : total (repeat s c) = s * N.of_nat c.
Proof. induction c as [|c IH]; [simpl; lia|]. simpl repeat. rewrite total_cons, IH. lia. Qed.

Lemma dot_expand : forall ks ns, dot ks ns = total (expand ks ns).
Proof.
  induction ks as [|k ks IH]; intros [|n ns]; try reflexivity. simpl. rewrite total_app, IH, total_repeat. lia.
Qed.

(** [js] jobs of each kind are among [ns] *)
Fixpoint under (js ns : list N) : Prop :=
  match js, ns with [], _ => True | j :: js, n :: ns => j <= n /\ under js ns | _, [] => False end.
Fixpoint minus (ns js : list N) : list N :=
  match ns, js with n :: ns, j :: js => n - j :: minus ns js | _, _ => ns end.

Lemma under_trans : forall a b c, under a b -> under b c -> under a c.
Proof.
  induction a as [|x a IH]; intros [|y b] [|z c]; simpl; try tauto. intros [A B] [C D]. split; [lia|eauto].
Qed.

Lemma under_dot : forall ks js ns, under js ns -> dot ks js <= dot ks ns.
Proof.
  induction ks as [|k ks IH]; intros [|j js] [|n ns] H; simpl in *; try lia.
  destruct H as [A B]. specialize (IH _ _ B). nia.
Qed.

(** how the copies of one job are shared between what is taken and what is left *)
Lemma share {A} (s : A) : forall c (t r L : list A), Permutation (t ++ r) (repeat s c ++ L) ->
  exists j t' r', (j <= c)%nat /\ Permutation t (repeat s j ++ t') /\ Permutation r (repeat s (c - j) ++ r')
    /\ Permutation (t' ++ r') L.
Proof.
  induction c as [|c IH]; intros t r L P; simpl in P.
  - exists 0%nat, t, r. auto.
  - assert (In s (t ++ r)) by (apply (Permutation_in s (Permutation_sym P)); now left).
    apply in_app_or in H. destruct H as [H|H]; apply in_split in H; destruct H as (u & v & ->).
    + rewrite <- app_assoc in P. simpl in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
      rewrite app_assoc in P. destruct (IH (u ++ v) r L P) as (j & t' & r' & Hj & A1 & B & D).
      exists (S j), t', r'. split; [lia|]. split; [|auto].
      simpl. rewrite <- A1. symmetry. apply Permutation_middle.
    + rewrite app_assoc in P. apply Permutation_sym, Permutation_cons_app_inv, Permutation_sym in P.
      rewrite <- app_assoc in P. destruct (IH t (u ++ v) L P) as (j & t' & r' & Hj & A1 & B & D).
      exists j, t', r'. split; [lia|]. split; [auto|]. split; [|auto].
      replace (S c - j)%nat with (S (c - j)) by lia. simpl. rewrite <- B. symmetry. apply Permutation_middle.
Qed.

Lemma parted : forall ks ns t r, length ns = length ks -> Permutation (t ++ r) (expand ks ns) ->
  exists js, length js = length ks /\ under js ns /\ Permutation t (expand ks js) /\ Permutation r (expand ks (minus ns js)).
Proof.
  induction ks as [|k ks IH]; intros [|n ns] t r L P; try discriminate; simpl in P.
  - apply Permutation_sym, Permutation_nil, app_eq_nil in P. destruct P as [-> ->]. exists []. simpl. auto.
  - apply share in P. destruct P as (j & t' & r' & Hj & A & B & D).
    destruct (IH ns t' r' ltac:(simpl in L; lia) D) as (js & Lj & U & T & R).
    exists (N.of_nat j :: js). simpl. rewrite Nat2N.id, N2Nat.inj_sub, Nat2N.id.
    split; [lia|]. split; [split; [lia|exact U]|]. split; [now rewrite A, T|now rewrite B, R].
Qed.

(** *** Kinds whose sums are theirs *)

Fixpoint sound (top : N) (ks : list kind) : Prop :=
  match ks with
  | [] => True
  | k :: rest => sound top rest /\ forall t js, sums_from k = Some t -> under js (map many ks) ->
      dot (map job ks) js <= top -> has_sum t (dot (map job ks) js)
  end.

Lemma prepared_spec top : forall zs, let (ks, sums) := prepared top zs in
  map job ks = map fst zs /\ map many ks = map snd zs /\ sound top ks /\
  forall l js, sums = Some l -> under js (map snd zs) -> dot (map fst zs) js <= top -> In (dot (map fst zs) js) l.
Proof.
  induction zs as [|[x n] zs IH]; simpl.
  - repeat split. intros l js E _ _. injection E as <-. now left.
  - destruct (prepared top zs) as [ks sums]. destruct IH as (J & M & S & In_sums).
    set (sums' := match sums with Some l => _ | None => None end).
    assert (K : forall l js, sums' = Some l -> under js (n :: map snd zs) -> dot (x :: map fst zs) js <= top ->
      In (dot (x :: map fst zs) js) l).
    { subst sums'. intros l js E U D. destruct sums as [before|]; [|discriminate].
      destruct (longer before most_sums); [discriminate|]. injection E as <-.
      assert (G : forall j js, j <= n -> under js (map snd zs) -> x * j + dot (map fst zs) js <= top ->
        In (dot (map fst zs) js + x * j) (with_jobs top x (N.to_nat (N.min n (top / x))) before)).
      { intros j js' Hj Ujs D'. specialize (In_sums before js' eq_refl Ujs ltac:(lia)).
        destruct (N.eq_dec x 0) as [E|E].
        - rewrite E. rewrite N.mul_0_l, N.add_0_r.
          pose proof (with_jobs_In top 0 (N.to_nat (N.min n (top / 0))) before _ 0%nat In_sums (Nat.le_0_l _)) as W.
          rewrite N.mul_0_l, N.add_0_r in W. apply W. lia.
        - assert (Q : j <= top / x) by (apply N.div_le_lower_bound; lia).
          pose proof (with_jobs_In top x (N.to_nat (N.min n (top / x))) before _ (N.to_nat j) In_sums) as W.
          rewrite N2Nat.id in W. apply W; lia. }
      destruct js as [|j js].
      - specialize (G 0 [] ltac:(lia) I). assert (E : dot (map fst zs) [] = 0) by now destruct (map fst zs).
        rewrite E, N.mul_0_r in G. simpl. apply G. lia.
      - simpl in *. destruct U as [U1 U2]. rewrite N.add_comm. now apply G. }
    simpl. rewrite J, M. split; [reflexivity|]. split; [reflexivity|]. split; [|exact K]. split; [exact S|].
    intros t js E U D. destruct sums' as [l|] eqn:Es; [|discriminate].
    apply (treed_In _ _ _ _ E). apply Exists_exists. exists (One (dot (x :: map fst zs) js)). split; [|reflexivity].
    apply in_map. now apply (K l).
Qed.

(** *** Loads *)

(** where the load of [js] jobs of each kind ends *)
Fixpoint reached (t : loads) (js : list N) : option (N * list bool) :=
  match t with
  | Nothing => None
  | Done w b => if forallb (N.eqb 0) js then Some (w, b) else None
  | Choose least a b =>
      match js with
      | [] => None
      | j :: js =>
          match (if j =? 0 then reached a js else reached b (j - 1 :: js)) with
          | Some (w, b) => if least <=? w then Some (w, b) else None
          | None => None
          end
      end
  end.

Lemma least_reached t js w b : reached t js = Some (w, b) -> least_of t <= w.
Proof.
  destruct t as [|w' b'|least a a']; cbn [reached least_of]; [discriminate| |].
  - destruct (forallb (N.eqb 0) js); [|discriminate]. intros E. injection E as -> _. reflexivity.
  - destruct js as [|j js]; [discriminate|]. destruct (if j =? 0 then _ else _) as [[w' b']|]; [|discriminate].
    destruct (N.leb_spec least w'); [|discriminate]. intros E. injection E as -> _. assumption.
Qed.

Lemma reached_joined a b j js d : (if j =? 0 then reached a js else reached b (j - 1 :: js)) = Some d ->
  reached (joined a b) (j :: js) = Some d.
Proof.
  destruct d as [w bs]. intros H.
  assert (G : forall least, (j =? 0 = true -> least <= least_of a) -> (j =? 0 = false -> least <= least_of b) ->
    reached (Choose least a b) (j :: js) = Some (w, bs)).
  { intros least Ha Hb. cbn [reached]. rewrite H. destruct (N.leb_spec least w) as [_|Hw]; [reflexivity|]. exfalso.
    destruct (j =? 0); apply least_reached in H; [specialize (Ha eq_refl)|specialize (Hb eq_refl)]; lia. }
  unfold joined. destruct a, b; try (apply G; cbn [least_of]; lia); try (destruct (j =? 0); discriminate).
  - apply G; [|reflexivity]. intros E. rewrite E in H. discriminate.
  - apply G; [|reflexivity]. intros E. rewrite E in H. discriminate.
  - destruct (N.eqb_spec j 0) as [->|]; [exact H|discriminate].
  - apply G; [reflexivity|]. intros E. rewrite E in H. discriminate.
Qed.

Lemma entries_spec : forall ks ns l fine, entries ks ns = (l, fine) ->
  match l with
  | [] => True
  | e :: _ => bytes_from e = dot (map job ks) ns
  end /\ (fine = true -> forall js, (length js <= length ks)%nat -> under js ns -> under js (map many ks)).
Proof.
  induction ks as [|k ks IH]; intros [|n ns] l fine E; simpl in E; try (injection E as <- <-).
  - split; [exact I|]. intros _ js _ U. destruct js; [exact I|contradiction].
  - split; [exact I|]. intros _ js L _. destruct js; [exact I|simpl in L; lia].
  - split; [exact I|]. intros _ js _ U. destruct js; [exact I|contradiction].
  - destruct (entries ks ns) as [m f] eqn:Em. destruct (IH ns m f Em) as [H F].
    assert (Z : match m with e :: _ => bytes_from e | [] => 0 end = dot (map job ks) ns).
    { destruct m as [|e m]; [|exact H].
      destruct ks, ns; try reflexivity. simpl in Em. destruct (entries ks ns) as [[|e l'] f']; discriminate. }
    rewrite Z in E. injection E as <- <-. split; [reflexivity|].
    intros Hf js L U. apply andb_prop in Hf. destruct Hf as [Hf Hn]. apply N.leb_le in Hn.
    destruct js as [|j js]; [exact I|]. simpl in *. destruct U as [U1 U2]. split; [lia|apply F; [exact Hf|lia|exact U2]].
Qed.

Lemma listed_complete top all : forall ks ns js, sound top ks -> length js = length ks -> under js ns ->
  forall room need taken, room <= top ->
  dot (map job ks) js <= room -> need <= dot (map job ks) js ->
  exists taken', reached (listed all (fst (entries ks ns)) room need taken) js
    = Some (room - dot (map job ks) js, bars all taken' (room - dot (map job ks) js))
  /\ forall s, In s taken' -> In s taken \/ In s (expand (map job ks) js).
Proof.
  induction ks as [|k ks IH]; intros ns [|j js] S L U room need taken T R Nd; try discriminate.
  - simpl in *. replace need with 0 by lia. exists taken.
    destruct ns; simpl; rewrite !N.sub_0_r; auto.
  - destruct ns as [|n ns]; [contradiction|]. simpl in S. destruct S as [S Sums]. simpl in U. destruct U as [U1 U].
    simpl in L. destruct (entries ks ns) as [m f] eqn:Em. specialize (IH ns js S ltac:(lia) U). rewrite Em in IH. simpl fst in IH.
    pose proof (entries_spec (k :: ks) (n :: ns)) as Sp. simpl entries. simpl entries in Sp. rewrite Em in *.
    set (b := match m with e :: _ => bytes_from e | [] => 0 end) in *.
    specialize (Sp _ _ eq_refl). cbn [map fst] in *. destruct Sp as [Eb F]. cbn [bytes_from] in Eb.
    set (e := Entry (job k) (N.to_nat n) _ _) in *.
    assert (Hl : forall i room need, i <= n -> room <= top -> job k * i + dot (map job ks) js <= room ->
      need <= job k * i + dot (map job ks) js ->
      hopeless e room need = false).
    { intros i room' need' Hi T' R' N'. unfold hopeless, e. cbn [bytes_from reach_from].
      assert (Ui : under (i :: js) (n :: ns)) by (split; assumption).
      pose proof (under_dot (job k :: map job ks) _ _ Ui) as Db.
      rewrite Eb. simpl dot in *. destruct (N.ltb_spec (job k * n + dot (map job ks) ns) need'); [lia|]. simpl.
      destruct (f && (n <=? many k)) eqn:Fine; [|reflexivity]. destruct (sums_from k) as [t|]; [|reflexivity].
      apply negb_false_iff. apply (meets_complete t (job k * i + dot (map job ks) js)); [|lia].
      apply (Sums t (i :: js) eq_refl); [|simpl dot; lia]. apply F; [reflexivity|simpl; lia|exact Ui]. }
    assert (We : what e = job k) by reflexivity. assert (Le : left e = N.to_nat n) by reflexivity. clearbody e.
    cbn [listed]. rewrite Le, We.
    assert (G : forall c i room need taken, (i <= N.of_nat c) -> i <= n -> room <= top ->
      job k * i + dot (map job ks) js <= room -> need <= job k * i + dot (map job ks) js ->
      exists taken', reached ((fix more (n : nat) (room need : N) (taken : list N) : loads :=
         if hopeless e room need then Nothing
         else joined (listed all m room need taken)
                (match n with
                 | O => Nothing
                 | Datatypes.S n =>
                     if job k <=? room
                     then more n (room - job k) (need - job k) (job k :: taken)
                     else Nothing
                 end)) c room need taken) (i :: js)
      = Some (room - (job k * i + dot (map job ks) js), bars all taken' (room - (job k * i + dot (map job ks) js)))
      /\ forall s, In s taken' -> In s taken \/ In s (repeat (job k) (N.to_nat i) ++ expand (map job ks) js)).
    { clear room need taken T R Nd. induction c as [|c IHc]; intros i room need taken Hc Hi T R Nd.
      - replace i with 0 in * by lia. rewrite ?N.mul_0_r, ?N.add_0_l in *.
        destruct (IH room need taken T R Nd) as (taken' & E & In').
        exists taken'. rewrite (Hl 0 room need) by lia. split; [|exact In'].
        apply reached_joined. rewrite N.eqb_refl. exact E.
      - rewrite (Hl i room need) by lia. destruct (N.eq_dec i 0) as [->|Hi0].
        + rewrite ?N.mul_0_r, ?N.add_0_l in *.
          destruct (IH room need taken T R Nd) as (taken' & E & In').
          exists taken'. split; [|exact In']. apply reached_joined. rewrite N.eqb_refl. exact E.
        + assert (Ei : i = (i - 1) + 1) by lia. destruct (N.leb_spec (job k) room); [|nia].
          destruct (IHc (i - 1) (room - job k) (need - job k) (job k :: taken))
            as (taken' & E & In'); [lia|lia|lia|nia|nia|].
          exists taken'. split.
          * apply reached_joined. destruct (N.eqb_spec i 0); [contradiction|]. rewrite E.
            replace (room - job k - (job k * (i - 1) + dot (map job ks) js))
              with (room - (job k * i + dot (map job ks) js)) by nia. reflexivity.
          * intros s Hs. replace (N.to_nat i) with (Datatypes.S (N.to_nat (i - 1))) by lia. simpl.
            destruct (In' s Hs) as [[<-|Hs']|Hs']; [right; now left|now left|right; now right]. }
    simpl dot in *. destruct (G (N.to_nat n) j room need taken) as (taken' & E & In'); try lia.
    exists taken'. split; [exact E|exact In'].
Qed.

Lemma without_found t slack : forall ns before found x, In x found -> In x (without t slack ns before found).
Proof.
  induction t as [|w b|least a IHa b IHb]; intros ns before found x H; cbn [without].
  - exact H.
  - destruct (w <=? slack); [|exact H]. cbn zeta. destruct (barred b _); [exact H|now right].
  - destruct (slack <? least); [exact H|]. destruct ns as [|n ns]; [exact H|]. destruct (n =? 0); [|apply IHb]; now apply IHa.
Qed.

Lemma minus_length : forall ns js, length (minus ns js) = length ns.
Proof. induction ns as [|n ns IH]; intros [|j js]; simpl; auto. Qed.

Lemma minus_zeros : forall js ns, forallb (N.eqb 0) js = true -> minus ns js = ns.
Proof.
  induction js as [|j js IH]; intros [|n ns] H; try reflexivity. cbn [forallb] in H. apply andb_prop in H. destruct H as [A B].
  apply N.eqb_eq in A. subst j. cbn [minus]. now rewrite IH, N.sub_0_r.
Qed.

Lemma without_complete slack w bs : w <= slack ->
  forall t js ns before found, reached t js = Some (w, bs) -> under js ns ->
  barred bs (rev_append before (minus ns js)) = false ->
  In (rev_append before (minus ns js)) (without t slack ns before found).
Proof.
  intros Hw. induction t as [|w' bs'|least a IHa b IHb]; intros js ns before found E U B; cbn [reached] in E; [discriminate| |].
  - destruct (forallb (N.eqb 0) js) eqn:Z; [|discriminate]. injection E as -> ->. rewrite (minus_zeros js ns Z) in *.
    cbn [without]. apply N.leb_le in Hw. rewrite Hw. cbn zeta. rewrite B. now left.
  - destruct js as [|j js]; [discriminate|]. destruct ns as [|n ns]; [contradiction|]. cbn [under] in U. destruct U as [U1 U].
    destruct (if j =? 0 then _ else _) as [[w' bs']|] eqn:E' in E; [|discriminate].
    destruct (N.leb_spec least w') as [Hw'|]; [|discriminate]. injection E as -> ->. rename E' into E.
    cbn [without minus] in *. destruct (N.ltb_spec slack least); [lia|]. destruct (N.eqb_spec j 0) as [->|Hj].
    + rewrite N.sub_0_r in *. specialize (IHa js ns (n :: before) found E U B).
      destruct (n =? 0); [exact IHa|now apply without_found].
    + destruct (N.eqb_spec n 0); [lia|].
      specialize (IHb (j - 1 :: js) (n - 1 :: ns) before (without a slack ns (n :: before) found) E).
      cbn [minus under] in IHb. replace (n - 1 - (j - 1)) with (n - j) in IHb by lia. apply IHb; [split; [lia|exact U]|exact B].
Qed.

(** *** Loads that can't be better *)

(** [l] goes into bins of these rooms *)
Definition packable (rooms l : list N) : Prop :=
  exists bins, Permutation (map snd bins) rooms /\ Forall (fun b => total (fst b) <= snd b) bins /\
    Permutation (concat (map fst bins)) l.

(** [z], which lies elsewhere, would fit in place of a job of size [s] *)
Definition better (waste s : N) (z : N) : bool := (s <? z) && (z <=? s + waste).

Lemma best_load (x r : N) : forall n t (others : list (list N * N)),
  x + total t <= r -> (N.to_nat (r - (x + total t)) <= n)%nat ->
  Forall (fun b => total (fst b) <= snd b) others ->
  exists t' others', map snd others' = map snd others /\ Forall (fun b => total (fst b) <= snd b) others' /\
    Permutation (t' ++ concat (map fst others')) (t ++ concat (map fst others)) /\ x + total t' <= r /\
    forall s z, In s (0 :: t') -> In z (concat (map fst others')) -> better (r - (x + total t')) s z = false.
Proof.
  induction n as [n IH] using lt_wf_ind. intros t others Ht Hn F. set (waste := r - (x + total t)) in *.
  destruct (existsb (fun z => existsb (fun s => better waste s z) (0 :: t)) (concat (map fst others))) eqn:E.
  - apply existsb_exists in E. destruct E as (z & Hz & E). apply existsb_exists in E. destruct E as (s & Hs & B).
    unfold better in B. apply andb_prop in B. destruct B as [B1 B2]. apply N.ltb_lt in B1. apply N.leb_le in B2. subst waste.
    apply in_concat in Hz. destruct Hz as (bin & Hb & Hz). apply in_map_iff in Hb. destruct Hb as ([bin' q] & Eb & Hb).
    simpl in Eb. subst bin'. apply in_split in Hb. destruct Hb as (b1 & b2 & ->). apply in_split in Hz. destruct Hz as (u & v & ->).
    apply Forall_app in F. destruct F as [F1 F2]. inversion_clear F2 as [|? ? Hq F3]. cbn [fst snd] in Hq.
    rewrite total_app, total_cons in Hq.
    assert (New : forall t2 bin2, total bin2 <= q -> Permutation (t2 ++ bin2) (t ++ u ++ z :: v) ->
      total t < total t2 -> x + total t2 <= r -> 
      exists t' others', map snd others' = map snd (b1 ++ (u ++ z :: v, q) :: b2) /\ Forall (fun b => total (fst b) <= snd b) others' /\
        Permutation (t' ++ concat (map fst others')) (t ++ concat (map fst (b1 ++ (u ++ z :: v, q) :: b2))) /\ x + total t' <= r /\
        forall s z, In s (0 :: t') -> In z (concat (map fst others')) -> better (r - (x + total t')) s z = false).
    { intros t2 bin2 H1 P H2 H3.
      destruct (IH (N.to_nat (r - (x + total t2))) ltac:(lia) t2 (b1 ++ (bin2, q) :: b2) H3 (Nat.le_refl _)) as (t' & o & A & B & C & D & G).
      { apply Forall_app. split; [exact F1|]. constructor; [exact H1|exact F3]. }
      exists t', o. split; [|split; [exact B|split; [|split; [exact D|exact G]]]].
      - rewrite A, !map_app. reflexivity.
      - rewrite C, !map_app, !concat_app. cbn [map fst concat].
        transitivity ((t2 ++ bin2) ++ concat (map fst b1) ++ concat (map fst b2)).
        + rewrite <- app_assoc. apply Permutation_app_head, Permutation_app_swap_app.
        + rewrite P, <- (app_assoc t). apply Permutation_app_head, Permutation_app_swap_app. }
    destruct Hs as [<-|Hs].
    + apply (New (z :: t) (u ++ v)); rewrite ?total_app, ?total_cons; try lia.
      simpl. rewrite (app_assoc t u (z :: v)). rewrite <- Permutation_middle. now rewrite app_assoc.
    + rename s into y. apply in_split in Hs. destruct Hs as (a & c & ->).
      rewrite total_app, total_cons in *.
      apply (New (a ++ z :: c) (u ++ y :: v)); rewrite ?total_app, ?total_cons; try lia.
      rewrite <- !app_assoc. apply Permutation_app_head. simpl.
      transitivity (z :: y :: c ++ u ++ v).
      * constructor. rewrite app_assoc. symmetry. rewrite app_assoc. apply Permutation_middle.
      * etransitivity; [apply perm_swap|]. constructor. rewrite !app_assoc. apply Permutation_middle.
  - exists t, others. split; [reflexivity|]. split; [exact F|]. split; [reflexivity|]. split; [exact Ht|].
    intros s z Hs Hz. apply not_true_is_false. intros B. apply not_true_iff_false in E. apply E.
    apply existsb_exists. exists z. split; [exact Hz|]. apply existsb_exists. now exists s.
Qed.

Lemma first_load rooms x L : packable rooms (x :: L) ->
  exists r rooms' t R, Permutation rooms (r :: rooms') /\ Permutation (t ++ R) L /\ x + total t <= r /\ packable rooms' R /\
    forall s z, In s (0 :: t) -> In z R -> better (r - (x + total t)) s z = false.
Proof.
  intros (bins & Pr & F & P).
  assert (Hin : In x (concat (map fst bins))) by (apply (Permutation_in x (Permutation_sym P)); now left).
  apply in_concat in Hin. destruct Hin as (bin & Hb & Hx). apply in_map_iff in Hb. destruct Hb as ([bin' r] & E & Hb).
  simpl in E. subst bin'. apply in_split in Hb. destruct Hb as (b1 & b2 & ->). apply in_split in Hx. destruct Hx as (u & v & ->).
  apply Forall_app in F. destruct F as [F1 F2]. inversion_clear F2 as [|? ? Hu F3]. cbn [fst snd] in Hu.
  rewrite total_app, total_cons in Hu.
  destruct (best_load x r (N.to_nat (r - (x + total (u ++ v)))) (u ++ v) (b1 ++ b2)) as (t & o & A & B & C & D & G).
  - rewrite total_app. lia.
  - reflexivity.
  - apply Forall_app. now split.
  - exists r, (map snd (b1 ++ b2)), t, (concat (map fst o)). split; [|split; [|split; [exact D|split; [|exact G]]]].
    + rewrite <- Pr, !map_app. cbn [map snd]. symmetry. apply Permutation_middle.
    + rewrite C. apply (Permutation_cons_inv (a := x)). rewrite <- P, !map_app, !concat_app. cbn [map fst concat].
      transitivity ((u ++ x :: v) ++ concat (map fst b1) ++ concat (map fst b2)).
      * rewrite <- !app_assoc. simpl. apply Permutation_middle.
      * apply Permutation_app_swap_app.
    + exists o. rewrite A. repeat split; auto.
Qed.

(** *** Rails of one kind less *)

Lemma one_rail : forall rs cs r, In r (expand rs cs) -> exists i, nth_error rs i = Some r /\ some_at i cs = true /\
  Permutation (expand rs cs) (r :: expand rs (less_one i cs)).
Proof.
  induction rs as [|r0 rs IH]; intros [|c cs] r H; try contradiction. simpl in H. apply in_app_or in H. destruct H as [H|H].
  - exists O. assert (r = r0) by (eapply repeat_spec; eauto). subst r0. split; [reflexivity|].
    assert (0 < c) by (destruct c; [contradiction|lia]). split; [now apply N.ltb_lt|].
    simpl. replace (N.to_nat c) with (S (N.to_nat (c - 1))) by lia. reflexivity.
  - destruct (IH cs r H) as (i & A & B & C). exists (S i). split; [exact A|]. split; [exact B|]. simpl. rewrite C.
    symmetry. apply Permutation_middle.
Qed.

Lemma numbered {A} : forall (rs : list A) i r a, nth_error rs i = Some r -> In (r, (a + i)%nat) (combine rs (seq a (length rs))).
Proof.
  induction rs as [|r0 rs IH]; intros [|i] r a H; simpl in *; try discriminate.
  - injection H as ->. left. f_equal. lia.
  - right. replace (a + S i)%nat with (S a + i)%nat by lia. now apply IH.
Qed.

Lemma under_refl : forall ns, under ns ns.
Proof. induction ns; simpl; auto with *. Qed.

Lemma under_highest : forall l m, under l (highest l m) /\ under m (highest l m).
Proof.
  induction l as [|x l IH]; intros m; [split; [exact I|apply under_refl]|]. destruct m as [|y m]; [split; [apply under_refl|exact I]|].
  destruct (IH m). simpl. repeat split; auto; lia.
Qed.

Lemma under_less_one : forall ns ms, under ns ms -> under (less_one 0 ns) (less_one 0 ms).
Proof. intros [|n ns] [|m ms]; simpl; auto. intros [A B]. split; [lia|exact B]. Qed.

(** *** What can be packed is found *)

Definition alive (rs : list N) (ks : list kind) (x : stock) : Prop :=
  length (snd x) = length ks /\ packable (expand rs (fst x)) (expand (map job ks) (snd x)).

Lemma packed_bytes rooms l : packable rooms l -> total l <= total rooms.
Proof.
  intros (bins & Pr & F & P). rewrite <- (total_perm _ _ P), <- (total_perm _ _ Pr). clear - F.
  induction F as [|b bins Hb F IH]; [reflexivity|]. cbn [map concat]. rewrite total_app, total_cons. lia.
Qed.

Lemma expand_incl : forall rs cs, incl (expand rs cs) rs.
Proof.
  induction rs as [|r rs IH]; intros [|c cs] x H; try contradiction. simpl in H. apply in_app_or in H.
  destruct H as [H|H]; [left; symmetry; eapply repeat_spec; eauto|right; eapply IH; eauto].
Qed.

Lemma barred_spec ks taken waste : forall ns, barred (bars ks taken waste) ns = true ->
  exists z s, In z (expand (map job ks) ns) /\ In s taken /\ better waste s z = true.
Proof.
  induction ks as [|k ks IH]; intros [|n ns] H; simpl in H; try discriminate. apply orb_prop in H. destruct H as [H|H].
  - apply andb_prop in H. destruct H as [H Hn]. apply existsb_exists in H. destruct H as (s & Hs & B). apply N.ltb_lt in Hn.
    exists (job k), s. split; [|split; [exact Hs|exact B]]. simpl. apply in_or_app. left.
    replace (N.to_nat n) with (S (N.to_nat (n - 1))) by lia. now left.
  - destruct (IH ns H) as (z & s & Hz & Hs & B). exists z, s. split; [simpl; apply in_or_app; now right|auto].
Qed.

Lemma some_first ns : some_at 0 ns = true -> exists n rest, ns = n :: rest /\ 0 < n.
Proof. destruct ns as [|n rest]; intros H; [discriminate|]. exists n, rest. split; [reflexivity|now apply N.ltb_lt]. Qed.

Lemma most_of {A} (f : A -> N) l x : In x l -> f x <= fold_right (fun x v => N.max (f x) v) 0 l.
Proof. induction l as [|y l IH]; [easy|]. intros [->|H]; simpl; [lia|]. specialize (IH H). lia. Qed.

Lemma next_complete top rs k rest l x : sound top (k :: rest) -> (forall r, In r rs -> r <= top) ->
  In x l -> some_at 0 (snd x) = true -> alive rs (k :: rest) x ->
  exists y, In y (next rs (k :: rest) (job k) l) /\ alive rs (k :: rest) y.
Proof.
  intros Sd Top Hx Hs (Len & Pk). destruct x as [cs ns]. cbn [fst snd] in *.
  destruct (some_first ns Hs) as (n & ns' & -> & Hn). set (ks := k :: rest) in *.
  assert (Ex : expand (map job ks) (n :: ns') = job k :: expand (map job ks) (n - 1 :: ns')).
  { simpl. replace (N.to_nat n) with (S (N.to_nat (n - 1))) by lia. reflexivity. }
  rewrite Ex in Pk. apply first_load in Pk. destruct Pk as (r & rooms & t & R & Pr & Pt & Fits & Rest & Best).
  assert (Hr : In r (expand rs cs)) by (apply (Permutation_in r (Permutation_sym Pr)); now left).
  assert (Hrs : In r rs) by (eapply expand_incl; eauto).
  destruct (one_rail rs cs r Hr) as (i & Ni & Si & Pi).
  assert (Prooms : Permutation rooms (expand rs (less_one i cs))).
  { apply (Permutation_cons_inv (a := r)). now rewrite <- Pr. }
  destruct (parted (map job ks) (n - 1 :: ns') t R) as (js & Lj & Uj & Tj & Rj); [rewrite map_length; exact Len|exact Pt|].
  rewrite map_length in Lj.
  exists (less_one i cs, minus (n - 1 :: ns') js).
  assert (Bt : total t = dot (map job ks) js) by (rewrite dot_expand; now apply total_perm).
  split.
  - unfold next. cbv zeta. apply in_flat_map. exists (r, i). split; [exact (numbered rs i r 0 Ni)|]. cbn [fst snd].
    unfold on_rail. destruct (N.ltb_spec r (job k)); [lia|].
    set (mine := filter (fun x : waiting => some_at i (fst (fst x))) (map (spared rs ks) l)). set (w := spared rs ks (cs, n :: ns')).
    assert (Hm : In w mine).
    { apply filter_In. split; [now apply in_map|exact Si]. }
    assert (Slack : r - (job k + total t) <= snd w).
    { unfold w, spared. cbn [fst snd]. rewrite !dot_expand.
      rewrite Ex, total_cons, <- (total_perm _ _ Pt), total_app, (total_perm _ _ Pr), total_cons.
      pose proof (packed_bytes _ _ Rest). lia. }
    pose proof (most_of (fun x : waiting => snd x) mine w Hm) as MostSlack. cbv beta in MostSlack.
    assert (U : forall m, In w m -> under (n :: ns') (fold_right (fun (x : waiting) ns => highest (snd (fst x)) ns) [] m)).
    { induction m as [|y m IH]; intros Hy; [contradiction|]. cbn [fold_right]. destruct Hy as [->|Hy].
      - unfold w at 1, spared. cbn [fst snd]. apply (under_highest (n :: ns')).
      - eapply under_trans; [apply IH, Hy|apply under_highest]. }
    specialize (U mine Hm). unfold with_first. cbv zeta.
    set (most := fold_right (fun (x : waiting) ns => highest (snd (fst x)) ns) [] mine) in *.
    set (slack := fold_right (fun (x : waiting) v => N.max (snd x) v) 0 mine) in *. clearbody most slack.
    destruct (listed_complete top ks ks (less_one 0 most) js Sd Lj) with (room := r - job k)
      (need := r - job k - slack) (taken := [0])
      as (taken & E & In').
    + eapply under_trans; [exact Uj|]. exact (under_less_one _ _ U).
    + specialize (Top r Hrs). lia.
    + rewrite <- Bt. lia.
    + rewrite <- Bt. lia.
    + apply in_flat_map. exists w. split; [exact Hm|]. apply in_map_iff. exists (minus (n - 1 :: ns') js). split; [reflexivity|].
      change (minus (n - 1 :: ns') js) with (rev_append [] (minus (n - 1 :: ns') js)).
      eapply without_complete; [|exact E| |].
      * rewrite <- Bt. lia.
      * exact Uj.
      * apply not_true_is_false. intros B. apply barred_spec in B. destruct B as (z & s & Hz & Hs' & B).
        assert (F : better (r - (job k + total t)) s z = false).
        { apply Best.
          - destruct (In' s Hs') as [[<-|[]]|Hs2]; [now left|right]. exact (Permutation_in s (Permutation_sym Tj) Hs2).
          - apply (Permutation_in z (Permutation_sym Rj)). exact Hz. }
        rewrite Bt in F. replace (r - (job k + dot (map job ks) js)) with (r - job k - dot (map job ks) js) in F by lia.
        congruence.
  - split.
    + cbn [snd]. rewrite minus_length. exact Len.
    + cbn [fst snd]. destruct Rest as (bins & A & B & C). exists bins. split; [now rewrite A|]. split; [exact B|]. now rewrite C.
Qed.

Lemma distinct_In x l : In x l -> In x (distinct l).
Proof.
  intros H. unfold distinct. apply (Permutation_in x (Stock_sort.Permuted_sort l)) in H. revert H.
  induction (Stock_sort.sort l) as [|y m IH]; [easy|]. intros H. cbn [once]. destruct m as [|z m]; [exact H|].
  destruct (by_stock y z) eqn:E.
  - assert (y = z).
    { unfold by_stock in E. destruct (lex N.compare (snd y) (snd z)) eqn:E2; try discriminate.
      apply (lex_eq N.compare N.compare_eq) in E, E2. destruct y, z. simpl in *. congruence. }
    subst z. apply IH. destruct H as [->|H]; [now left|exact H].
  - destruct H as [->|H]; [now left|right; now apply IH].
  - destruct H as [->|H]; [now left|right; now apply IH].
Qed.

Lemma emptied_complete top rs k rest : sound top (k :: rest) -> (forall r, In r rs -> r <= top) ->
  forall rounds l x, In x l -> alive rs (k :: rest) x ->
  exists y, In y (emptied rounds rs (k :: rest) (job k) l) /\ alive rs (k :: rest) y.
Proof.
  intros Sd Top. induction rounds as [|rounds IH]; intros l x Hx A; [now exists x|]. cbn [emptied].
  cbv zeta. set (here := filter (fun x : stock => some_at 0 (snd x)) l). set (later := filter (fun x : stock => negb (some_at 0 (snd x))) l).
  destruct (some_at 0 (snd x)) eqn:Hs.
  - assert (Hh : In x here) by (apply filter_In; now split).
    destruct (next_complete top rs k rest here x Sd Top Hh Hs A) as (y & Hy & Ay). destruct here as [|h here]; [contradiction|].
    apply (IH _ y); [|exact Ay]. apply distinct_In, in_or_app. now left.
  - assert (Hl : In x later) by (apply filter_In; split; [exact Hx|now rewrite Hs]). destruct here as [|h here]; [now exists x|].
    apply (IH _ x); [|exact A]. apply distinct_In, in_or_app. now right.
Qed.

Lemma search_sound top rs : (forall r, In r rs -> r <= top) ->
  forall ks l, sound top ks -> search rs ks l = true -> forall x, In x l -> ~ alive rs ks x.
Proof.
  intros Top. induction ks as [|k ks IH]; intros l Sd H x Hx A; (destruct l as [|x0 l0]; [contradiction|]); cbn [search] in H; [discriminate|].
  set (l := x0 :: l0) in *. apply andb_prop in H. destruct H as [Z H].
  destruct (emptied_complete top rs k ks Sd Top (N.to_nat (many k)) l x Hx A) as (y & Hy & (Len & Pk)).
  rewrite forallb_forall in Z. specialize (Z y Hy). apply negb_true_iff in Z. destruct y as [cs ns]. cbn [fst snd] in *.
  destruct ns as [|n ns]; [discriminate|]. unfold some_at in Z. cbn [nth] in Z. apply N.ltb_ge in Z. assert (n = 0) by lia. subst n.
  apply (IH _ (proj1 Sd) H (cs, ns)).
  - apply in_map_iff. exists (cs, 0 :: ns). split; [reflexivity|exact Hy].
  - split; cbn [fst snd map expand] in *; auto.
Qed.

(** *** Jobs and rails counted *)

Definition spread (zs : list (N * N)) : list N := expand (map fst zs) (map snd zs).

Lemma counted_spread l : spread (counted l) = l.
Proof.
  induction l as [|x l IH]; [reflexivity|]. cbn [counted]. destruct (counted l) as [|[y n] rest].
  - cbn in *. now rewrite <- IH.
  - destruct (N.eqb_spec x y) as [<-|_]; unfold spread in *; cbn [map expand fst snd] in *; rewrite <- IH; [|reflexivity].
    replace (N.to_nat (n + 1)) with (S (N.to_nat n)) by lia. reflexivity.
Qed.

Lemma counted_In l r : In r (map fst (counted l)) -> In r l.
Proof.
  induction l as [|x l IH]; intros H; [exact H|]. cbn [counted] in H. destruct (counted l) as [|[y n] rest].
  - destruct H as [<-|[]]. now left.
  - destruct (x =? y); cbn [map fst] in *; [right; now apply IH|]. destruct H as [<-|H]; [now left|right; now apply IH].
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

Theorem T7_cover_sound : forall caps ps, by_cover caps ps = true -> refuted caps ps.
Proof.
  unfold by_cover. cbv zeta. intros caps ps H a [L F] C.
  set (top := fold_right N.max 0 caps) in *. set (rails := counted (Descend.sort caps)) in *.
  pose proof (prepared_spec top (counted ps)) as Pr. destruct (prepared top (counted ps)) as [ks sums].
  destruct Pr as (J & M & Sd & _). cbn [fst] in H.
  assert (Top : forall r, In r (map fst rails) -> r <= top).
  { intros r Hr. apply counted_In in Hr. apply room_max.
    apply (Permutation_in r (Permutation_sym (Descend.Permuted_sort caps)) Hr). }
  apply (search_sound top _ Top ks _ Sd H _ (or_introl eq_refl)). split; cbn [fst snd].
  - apply (f_equal (@length _)) in M. rewrite !map_length in *. now symmetry.
  - rewrite J. fold (spread rails) (spread (counted ps)). unfold rails. rewrite !counted_spread.
    exists (map (fun r => (on r ps a, nth r caps 0)) (seq 0 (length caps))). split; [|split].
    + rewrite map_map. cbn [snd].
      replace (map (fun r => nth r caps 0) (seq 0 (length caps))) with caps; [apply Descend.Permuted_sort|].
      clear. induction caps as [|c caps IH]; [reflexivity|]. simpl length. rewrite <- cons_seq, <- seq_shift. cbn [map nth]. rewrite map_map. cbn [nth]. now rewrite <- IH.
    + apply Forall_map, Forall_forall. intros r Hr. apply in_seq in Hr. cbn [fst snd]. exact (C r ltac:(lia)).
    + rewrite map_map. cbn [fst]. now apply rails_perm.
Qed.
