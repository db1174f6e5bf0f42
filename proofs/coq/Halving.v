(** * T8a: the equitable colouring as it runs

    An even number of colours is halved: every pair's count is halved, and what is odd is shared
    out along trails, each from an odd vertex to an odd vertex, then closed ones.  A trail leaves a
    vertex in one half and enters it in the other, so the halves of a vertex differ by one at most.
    An odd number of colours deals out whole rounds and colours the rest edge by edge (T8). *)
From Coq Require Import Arith Lia List Bool ZArith ZifyNat Permutation.
From Rails Require Import Sums Model Koenig Equitable.
Import ListNotations.
Ltac Zify.zify_post_hook ::= Z.to_euclidean_division_equations.

(** ** The program *)

Definition bit (b : bool) : nat := if b then 1 else 0.

(** odd counts that no trail has taken yet, and the two halves so far; [i] sends, [j] receives *)
Record halves := Halves {
  unused : nat -> nat -> bool;
  one : nat -> nat -> nat;
  two : nat -> nat -> nat }.

Definition mark (c : bool) (k f i j : nat) : nat := bit (c && (i =? k) && (j =? f)).

(** the edge from k to f is walked, from left to right or back *)
Definition walk (s : halves) (k f : nat) (forth : bool) : halves :=
  Halves (fun i j => unused s i j && negb ((i =? k) && (j =? f)))
    (fun i j => one s i j + mark forth k f i j)
    (fun i j => two s i j + mark (negb forth) k f i j).

Section Program.
  Variable M : nat.

  (** walk unused edges, the lowest neighbour first, until there is no way on *)
  Fixpoint trail (steps : nat) (left : bool) (v : nat) (s : halves) : halves :=
    match steps with
    | 0 => s
    | S steps =>
        if left then
          match find (fun f => unused s v f) (seq 0 M) with
          | Some f => trail steps false f (walk s v f true)
          | None => s
          end
        else
          match find (fun k => unused s k v) (seq 0 M) with
          | Some k => trail steps true k (walk s k v false)
          | None => s
          end
    end.

  (** unused edges of a vertex *)
  Definition degree (s : halves) (left : bool) (v : nat) : nat :=
    sum M (fun w => bit (if left then unused s v w else unused s w v)).

  Definition from_odd (left : bool) (s : halves) (v : nat) : halves :=
    if degree s left v mod 2 =? 1 then trail (S (M * M)) left v s else s.
  Definition closed (s : halves) (v : nat) : halves := trail (S (M * M)) true v s.

  Definition start (counts : nat -> nat -> nat) : halves :=
    Halves (fun i j => counts i j mod 2 =? 1) (fun i j => counts i j / 2) (fun i j => counts i j / 2).
  Definition halve (counts : nat -> nat -> nat) : halves :=
    fold_left closed (seq 0 M) (fold_left (from_odd false) (seq 0 M)
      (fold_left (from_odd true) (seq 0 M) (start counts))).

  (** an odd number of colours: whole rounds of a pair, then edges one by one, the first one first *)
  Definition by_edges (N : nat) (counts : nat -> nat -> nat) : list (nat -> nat -> nat) :=
    let H := coloured N (rev (chunks M (fun i j => counts i j mod N))) in
    map (fun n i j => counts i j / N + on_rail H i j n) (seq 0 N).

  Fixpoint split (steps N : nat) (counts : nat -> nat -> nat) : list (nat -> nat -> nat) :=
    match steps with
    | 0 => by_edges N counts
    | S steps =>
        if N mod 2 =? 0 then
          let s := halve counts in split steps (N / 2) (one s) ++ split steps (N / 2) (two s)
        else by_edges N counts
    end.

  (** N rails: whole rounds of a pair go one to each rail, the rest is split *)
  Definition rail_counts (N : nat) (D : nat -> nat -> nat) : list (nat -> nat -> nat) :=
    map (fun part i j => D i j / N + part i j) (split N N (fun i j => D i j mod N)).
End Program.

(** ** One step *)
Section Proof.
  Variable M : nat.

  (** what a vertex has more in the half in which trails leave it *)
  Definition lead (s : halves) (left : bool) (v : nat) : Z :=
    if left then Z.of_nat (row M (one s) v) - Z.of_nat (row M (two s) v)
    else Z.of_nat (col M (two s) v) - Z.of_nat (col M (one s) v).
  Definition edges (s : halves) : nat := sum M (row M (fun i j => bit (unused s i j))).
  Definition total (s : halves) (i j : nat) : nat := one s i j + two s i j + bit (unused s i j).

  Lemma add_row X c k f i : f < M -> row M (fun i j => X i j + mark c k f i j) i = row M X i + bit (c && (i =? k)).
  Proof.
    intros Hf. unfold row. rewrite sum_add. f_equal. unfold mark.
    destruct (c && (i =? k)); simpl; [|apply sum_0; auto].
    unfold bit. rewrite (sum_ind M f). apply Nat.ltb_lt in Hf. now rewrite Hf.
  Qed.
  Lemma add_col X c k f j : k < M -> col M (fun i j => X i j + mark c k f i j) j = col M X j + bit (c && (j =? f)).
  Proof.
    intros Hk. unfold col. rewrite sum_add. f_equal. unfold mark.
    rewrite (sum_ext M _ (fun i => bit (c && (j =? f)) * (if i =? k then 1 else 0))).
    - rewrite <- sum_mul, sum_ind. apply Nat.ltb_lt in Hk. rewrite Hk. lia.
    - intros i _. destruct c, (i =? k), (j =? f); reflexivity.
  Qed.

  (** 1 at one vertex, 0 at all others *)
  Definition here (left : bool) (v : nat) (side : bool) (w : nat) : Z :=
    if Bool.eqb side left && (w =? v) then 1%Z else 0%Z.

  Lemma walk_lead s k f forth side w : k < M -> f < M ->
    lead (walk s k f forth) side w
    = (lead s side w + here forth (if forth then k else f) side w - here (negb forth) (if forth then f else k) side w)%Z.
  Proof.
    intros Hk Hf. unfold lead, walk, here. cbn [one two].
    destruct side.
    - rewrite !add_row by exact Hf. destruct forth; simpl; destruct (w =? k); simpl; lia.
    - rewrite !add_col by exact Hk. destruct forth; simpl; destruct (w =? f); simpl; lia.
  Qed.

  Lemma walk_total s k f forth i j : unused s k f = true -> total (walk s k f forth) i j = total s i j.
  Proof.
    intros U. unfold total, walk, mark. cbn [one two unused].
    destruct (Nat.eqb_spec i k) as [->|], (Nat.eqb_spec j f) as [->|]; simpl;
      rewrite ?andb_true_r, ?andb_false_r, ?U; destruct forth; simpl; lia.
  Qed.

  Lemma walk_unused s k f forth i j : unused (walk s k f forth) i j = true -> unused s i j = true.
  Proof. unfold walk. cbn [unused]. intros H. now apply andb_prop in H. Qed.

  Lemma walk_edges s k f forth : k < M -> f < M -> unused s k f = true -> edges (walk s k f forth) + 1 = edges s.
  Proof.
    intros Hk Hf U. unfold edges. set (left := fun i j => bit (unused (walk s k f forth) i j)).
    rewrite (sum_ext M (row M (fun i j => bit (unused s i j))) (fun i => row M left i + (if i =? k then 1 else 0))).
    - rewrite sum_add, sum_ind. apply Nat.ltb_lt in Hk. now rewrite Hk.
    - intros i _. transitivity (row M (fun i j => left i j + mark true k f i j) i);
        [|exact (add_row left true k f i Hf)]. apply sum_ext. intros j _.
      unfold left, walk, mark. cbn [unused].
      destruct (Nat.eqb_spec i k) as [->|], (Nat.eqb_spec j f) as [->|]; simpl;
        rewrite ?andb_true_r, ?andb_false_r, ?U; simpl; lia.
  Qed.

  (** ** A trail *)

  Lemma none_left (p : nat -> bool) : find p (seq 0 M) = None -> sum M (fun w => bit (p w)) = 0.
  Proof.
    intros H. apply sum_0. intros w Hw. rewrite (find_none _ _ H w); [reflexivity|]. apply in_seq. lia.
  Qed.

  (** a trail ends where nothing is left, and only its two ends notice it *)
  Definition walked (s : halves) (left : bool) (v : nat) (s' : halves) (at_left : bool) (t : nat) : Prop :=
    t < M /\ degree M s' at_left t = 0 /\
    (forall i j, total s' i j = total s i j) /\
    (forall i j, unused s' i j = true -> unused s i j = true) /\
    (forall side w, lead s' side w = (lead s side w + here left v side w - here at_left t side w)%Z).

  Lemma trail_walked : forall steps left v s, v < M -> edges s < steps ->
    exists at_left t, walked s left v (trail M steps left v s) at_left t.
  Proof.
    induction steps as [|steps IH]; intros left v s Hv He; [lia|]. simpl.
    destruct left.
    - destruct (find (fun f => unused s v f) (seq 0 M)) as [f|] eqn:Fd.
      + apply find_some in Fd. destruct Fd as [Hf U]. apply in_seq in Hf.
        pose proof (walk_edges s v f true Hv ltac:(lia) U).
        destruct (IH false f (walk s v f true) ltac:(lia) ltac:(lia)) as (al & t & Ht & Z & T & Un & Ld).
        exists al, t. split; [exact Ht|]. split; [exact Z|]. split; [|split].
        * intros i j. rewrite T. now apply walk_total.
        * intros i j Hu. apply Un in Hu. now apply walk_unused in Hu.
        * intros side w. rewrite Ld, walk_lead by lia. simpl. lia.
      + exists true, v. split; [exact Hv|]. split; [exact (none_left _ Fd)|]. repeat split; auto.
        intros side w. lia.
    - destruct (find (fun k => unused s k v) (seq 0 M)) as [k|] eqn:Fd.
      + apply find_some in Fd. destruct Fd as [Hk U]. apply in_seq in Hk.
        pose proof (walk_edges s k v false ltac:(lia) Hv U).
        destruct (IH true k (walk s k v false) ltac:(lia) ltac:(lia)) as (al & t & Ht & Z & T & Un & Ld).
        exists al, t. split; [exact Ht|]. split; [exact Z|]. split; [|split].
        * intros i j. rewrite T. now apply walk_total.
        * intros i j Hu. apply Un in Hu. now apply walk_unused in Hu.
        * intros side w. rewrite Ld, walk_lead by lia. simpl. lia.
      + exists false, v. split; [exact Hv|]. split; [exact (none_left _ Fd)|]. repeat split; auto.
        intros side w. lia.
  Qed.

  Lemma edges_most s : edges s <= M * M.
  Proof.
    unfold edges. apply sum_le_const. intros i _. unfold row.
    etransitivity; [apply (sum_le_const M 1)|lia]. intros j _. unfold bit. destruct (unused s i j); lia.
  Qed.

  (** all counts of a vertex: in the halves, or unused *)
  Definition all (X : nat -> nat -> nat) (left : bool) (v : nat) : nat := if left then row M X v else col M X v.

  Lemma all_parts s left v : all (total s) left v = all (one s) left v + all (two s) left v + degree M s left v.
  Proof. unfold all, degree, total, row, col. destruct left; now rewrite <- !sum_add. Qed.

  Lemma same_parity s s' left v : (forall i j, total s' i j = total s i j) ->
    exists m, (Z.of_nat (degree M s' left v) + lead s' left v
      = Z.of_nat (degree M s left v) + lead s left v + 2 * m)%Z.
  Proof.
    intros T. assert (E : all (total s') left v = all (total s) left v).
    { unfold all, row, col. destruct left; apply sum_ext; intros; apply T. }
    rewrite !all_parts in E. unfold lead, all in *.
    exists (Z.of_nat (if left then row M (two s) v else col M (one s) v)
      - Z.of_nat (if left then row M (two s') v else col M (one s') v))%Z.
    destruct left; lia.
  Qed.

  (** ** All trails *)

  Definition is_odd (s : halves) (left : bool) (v : nat) : Prop := degree M s left v mod 2 = 1.
  Definition level (s : halves) : Prop := forall left v, v < M ->
    (-1 <= lead s left v <= 1)%Z /\ (is_odd s left v -> lead s left v = 0%Z).
  (** nothing is lost, nothing becomes unused, nothing becomes odd *)
  Definition later (s s' : halves) : Prop :=
    (forall i j, total s' i j = total s i j) /\
    (forall i j, unused s' i j = true -> unused s i j = true) /\
    (forall left v, v < M -> is_odd s' left v -> is_odd s left v).

  Lemma later_refl s : later s s.
  Proof. repeat split; auto. Qed.
  Lemma later_trans s s' s'' : later s s' -> later s' s'' -> later s s''.
  Proof.
    intros (T & U & O) (T' & U' & O'). split; [|split].
    - intros i j. now rewrite T'.
    - auto.
    - auto.
  Qed.

  Lemma here_cases left v side w : (side = left /\ w = v /\ here left v side w = 1%Z) \/
    (~ (side = left /\ w = v) /\ here left v side w = 0%Z).
  Proof.
    unfold here. destruct (Bool.eqb side left) eqn:E1, (Nat.eqb_spec w v) as [->|N]; simpl.
    - left. apply eqb_prop in E1. auto.
    - right. tauto.
    - right. apply eqb_false_iff in E1. tauto.
    - right. tauto.
  Qed.

  Lemma odd_step s left v : v < M -> level s ->
    let s' := from_odd M left s v in level s' /\ later s s' /\ ~ is_odd s' left v.
  Proof.
    intros Hv Lv. unfold from_odd. destruct (Nat.eqb_spec (degree M s left v mod 2) 1) as [O|O];
      [|cbv zeta; split; [exact Lv|]; split; [apply later_refl|exact O]].
    pose proof (edges_most s).
    destruct (trail_walked (S (M * M)) left v s Hv ltac:(lia)) as (al & t & Ht & Z & T & U & Ld).
    set (s' := trail M (S (M * M)) left v s) in *. cbv zeta.
    assert (Each : forall side w, w < M -> (-1 <= lead s' side w <= 1)%Z /\
      (is_odd s' side w -> lead s' side w = 0%Z /\ is_odd s side w) /\ (side = left -> w = v -> ~ is_odd s' side w)).
    { intros side w Hw. destruct (Lv side w Hw) as [Bd Z0]. specialize (Ld side w).
      destruct (same_parity s s' side w T) as [m E]. unfold is_odd in *.
      destruct (here_cases left v side w) as [(E0 & E1 & H1)|(N1 & H1)],
        (here_cases al t side w) as [(E2 & E3 & H2)|(N2 & H2)]; rewrite H1, H2 in Ld.
      - subst. rewrite Z in *. exfalso. lia.
      - subst. specialize (Z0 O). split; [lia|]. split; [lia|]. intros. lia.
      - subst. rewrite Z in *. assert (Was : degree M s al t mod 2 = 1) by lia. specialize (Z0 Was).
        split; [lia|]. split; [|tauto]. lia.
      - split; [lia|]. split; [|tauto]. intros O'. assert (Was : degree M s side w mod 2 = 1) by lia.
        specialize (Z0 Was). lia. }
    split; [|split; [split; [|split]|]]; auto.
    - intros side w Hw. destruct (Each side w Hw) as (B & O' & _). split; [exact B|]. intros Ho. now apply O'.
    - intros side w Hw Ho. destruct (Each side w Hw) as (_ & O' & _). now apply O'.
    - now apply (Each left v Hv).
  Qed.

  Lemma closed_step s v : v < M -> level s -> (forall left w, w < M -> ~ is_odd s left w) ->
    let s' := closed M s v in level s' /\ later s s' /\ degree M s' true v = 0.
  Proof.
    intros Hv Lv Even. unfold closed. pose proof (edges_most s).
    destruct (trail_walked (S (M * M)) true v s Hv ltac:(lia)) as (al & t & Ht & Z & T & U & Ld).
    set (s' := trail M (S (M * M)) true v s) in *. cbv zeta.
    assert (Back : al = true /\ t = v).
    { destruct (same_parity s s' al t T) as [m E]. specialize (Ld al t). rewrite Z in E.
      destruct (here_cases true v al t) as [(E2 & E3 & _)|(_ & H1)]; [auto|exfalso].
      destruct (here_cases al t al t) as [(_ & _ & H2)|(N2 & _)]; [|tauto]. rewrite H1, H2 in Ld.
      apply (Even al t Ht). unfold is_odd. lia. }
    destruct Back as [-> ->].
    assert (Same : forall side w, lead s' side w = lead s side w) by (intros; rewrite Ld; lia).
    assert (Odd : forall side w, is_odd s' side w -> is_odd s side w).
    { intros side w. destruct (same_parity s s' side w T) as [m E]. rewrite Same in E. unfold is_odd. lia. }
    split; [|split; [split; [|split]|]]; auto.
    intros side w Hw. rewrite Same. split; [now apply Lv|]. intros Ho. now apply Lv, Odd.
  Qed.

  Lemma odd_trails left : forall l s, (forall v, In v l -> v < M) -> level s ->
    let s' := fold_left (from_odd M left) l s in
    level s' /\ later s s' /\ forall v, In v l -> ~ is_odd s' left v.
  Proof.
    induction l as [|a l IH]; intros s Hl Lv; simpl.
    - split; [exact Lv|]. split; [apply later_refl|easy].
    - destruct (odd_step s left a (Hl a (or_introl eq_refl)) Lv) as (Lv1 & La1 & No).
      destruct (IH (from_odd M left s a)) as (Lv2 & La2 & None); auto.
      { intros v Hv. apply Hl. now right. }
      split; [exact Lv2|]. split; [eapply later_trans; eauto|]. intros v [<-|Hv]; [|auto].
      intros Ho. apply No. apply La2; auto. apply Hl. now left.
  Qed.

  Lemma degree_0 s s' left v : later s s' -> degree M s left v = 0 -> degree M s' left v = 0.
  Proof.
    intros (_ & U & _) Z. apply sum_0. intros w Hw.
    pose proof (sum_single M (fun w => bit (if left then unused s v w else unused s w v)) w Hw) as H.
    unfold degree in Z. cbv beta in H. rewrite Z in H.
    destruct left; [specialize (U v w)|specialize (U w v)]; unfold bit in *;
      destruct (unused s' _ _); auto; rewrite U in H by reflexivity; lia.
  Qed.

  Lemma closed_trails : forall l s, (forall v, In v l -> v < M) -> level s ->
    (forall left w, w < M -> ~ is_odd s left w) ->
    let s' := fold_left (closed M) l s in
    level s' /\ later s s' /\ forall v, In v l -> degree M s' true v = 0.
  Proof.
    induction l as [|a l IH]; intros s Hl Lv Even; simpl.
    - split; [exact Lv|]. split; [apply later_refl|easy].
    - destruct (closed_step s a (Hl a (or_introl eq_refl)) Lv Even) as (Lv1 & La1 & No).
      destruct (IH (closed M s a)) as (Lv2 & La2 & None); auto.
      { intros v Hv. apply Hl. now right. }
      { intros left w Hw Ho. apply (Even left w Hw). now apply La1. }
      split; [exact Lv2|]. split; [eapply later_trans; eauto|]. intros v [<-|Hv]; [|auto].
      now apply (degree_0 (closed M s a)).
  Qed.

  Lemma start_level counts : level (start counts).
  Proof.
    intros left v Hv. assert (E : lead (start counts) left v = 0%Z).
    { unfold lead, start. cbn [one two]. destruct left; lia. }
    rewrite E. split; [lia|auto].
  Qed.

  Lemma start_total counts i j : total (start counts) i j = counts i j.
  Proof.
    unfold total, start. cbn [one two unused]. unfold bit.
    destruct (Nat.eqb_spec (counts i j mod 2) 1); lia.
  Qed.
End Proof.

(** half of a whole, rounded either way *)
Definition half (whole part : nat) : Prop := 2 * part <= whole + 1 /\ whole <= 2 * part + 1.

(** T8a: a matrix is cut into two, and every line of either is half of its line, rounded *)
Theorem T8_halve : forall M counts, let s := halve M counts in
  (forall i j, i < M -> j < M -> one s i j + two s i j = counts i j) /\
  (forall i, i < M -> half (row M counts i) (row M (one s) i) /\ half (row M counts i) (row M (two s) i)) /\
  (forall j, j < M -> half (col M counts j) (col M (one s) j) /\ half (col M counts j) (col M (two s) j)).
Proof.
  intros M counts s. unfold halve in s.
  assert (In_lt : forall v, In v (seq 0 M) -> v < M) by (intros v Hv; apply in_seq in Hv; lia).
  destruct (odd_trails M true (seq 0 M) (start counts) In_lt (start_level M counts)) as (Lv1 & La1 & O1).
  destruct (odd_trails M false (seq 0 M) _ In_lt Lv1) as (Lv2 & La2 & O2).
  destruct (closed_trails M (seq 0 M) _ In_lt Lv2) as (Lv3 & La3 & O3).
  { intros [|] w Hw Ho.
    - apply (O1 w); [apply in_seq; lia|]. now apply La2.
    - apply (O2 w); [apply in_seq; lia|exact Ho]. }
  fold s in Lv3, La3, O3.
  assert (T : forall i j, total s i j = counts i j).
  { intros i j. rewrite <- (start_total counts i j). destruct La1 as (T1 & _), La2 as (T2 & _), La3 as (T3 & _).
    now rewrite T3, T2, T1. }
  assert (Used : forall i j, i < M -> j < M -> unused s i j = false).
  { intros i j Hi Hj. specialize (O3 i ltac:(apply in_seq; lia)).
    pose proof (sum_single M (fun w => bit (unused s i w)) j Hj) as H. unfold degree in O3. cbv beta in H.
    rewrite O3 in H. unfold bit in H. destruct (unused s i j); [lia|reflexivity]. }
  assert (Parts : forall i j, i < M -> j < M -> one s i j + two s i j = counts i j).
  { intros i j Hi Hj. rewrite <- T. unfold total. rewrite Used by auto. simpl. lia. }
  split; [exact Parts|]. split; intros v Hv.
  - assert (E : row M counts v = row M (one s) v + row M (two s) v).
    { unfold row. rewrite <- sum_add. apply sum_ext. intros j Hj. symmetry. auto. }
    destruct (Lv3 true v Hv) as [B _]. unfold lead in B. unfold half. lia.
  - assert (E : col M counts v = col M (one s) v + col M (two s) v).
    { unfold col. rewrite <- sum_add. apply sum_ext. intros j Hj. symmetry. auto. }
    destruct (Lv3 false v Hv) as [B _]. unfold lead in B. unfold half. lia.
Qed.

(** ** All colours *)

(** [N] parts that add up to [counts], every line of every part floor or ceiling of its line over [N] *)
Definition nothing (i j : nat) : nat := 0.
Definition equitable_parts (M N : nat) (counts : nat -> nat -> nat) (parts : list (nat -> nat -> nat)) : Prop :=
  length parts = N /\
  (forall i j, i < M -> j < M -> list_sum (map (fun part => part i j) parts) = counts i j) /\
  (forall part, In part parts ->
    (forall i, i < M -> N * row M part i < row M counts i + N /\ row M counts i < N * row M part i + N) /\
    (forall j, j < M -> N * col M part j < col M counts j + N /\ col M counts j < N * col M part j + N)).

Lemma rounded_twice N whole part s : half whole part -> N * s < part + N /\ part < N * s + N ->
  (N + N) * s < whole + (N + N) /\ whole < (N + N) * s + (N + N).
Proof. unfold half. intros [H1 H2] [H3 H4]. rewrite Nat.mul_add_distr_r. lia. Qed.

Lemma rounded_rounds N whole rounds s part : N * rounds + part = whole ->
  N * s < part + N /\ part < N * s + N -> N * (rounds + s) < whole + N /\ whole < N * (rounds + s) + N.
Proof. intros <-. rewrite Nat.mul_add_distr_l. lia. Qed.

Lemma row_rounds M N D i : N <> 0 ->
  N * row M (fun i j => D i j / N) i + row M (fun i j => D i j mod N) i = row M D i.
Proof.
  intros HN. unfold row. rewrite sum_mul, <- sum_add. apply sum_ext. intros j _.
  symmetry. now apply Nat.div_mod.
Qed.
Lemma col_rounds M N D j : N <> 0 ->
  N * col M (fun i j => D i j / N) j + col M (fun i j => D i j mod N) j = col M D j.
Proof.
  intros HN. unfold col. rewrite sum_mul, <- sum_add. apply sum_ext. intros i _.
  symmetry. now apply Nat.div_mod.
Qed.

Lemma sum_map n f : list_sum (map f (seq 0 n)) = sum n f.
Proof. induction n as [|n IH]; [reflexivity|]. rewrite seq_S, map_app, list_sum_app, IH. simpl. lia. Qed.

(** T8a: colouring edge by edge is equitable *)
Theorem T8_by_edges : forall M N counts, 1 <= N -> equitable_parts M N counts (by_edges M N counts).
Proof.
  intros M N counts HN. unfold by_edges.
  destruct (T8_coloured M N (fun i j => counts i j mod N) (rev (chunks M (fun i j => counts i j mod N))) HN
    (Permutation_rev _)) as (F & S & R).
  set (H := coloured N _) in *. clearbody H. split; [now rewrite map_length, seq_length|]. split.
  - intros i j Hi Hj. rewrite map_map, sum_map. transitivity (N * (counts i j / N) + counts i j mod N).
    + rewrite <- (F i j Hi Hj), <- sum_const, <- sum_add. reflexivity.
    + symmetry. apply Nat.div_mod. lia.
  - intros part Hin. apply in_map_iff in Hin. destruct Hin as (n & <- & Hn). apply in_seq in Hn. split.
    + intros i Hi. unfold row at 1 4. rewrite sum_add.
      apply (rounded_rounds N _ _ _ (row M (fun i j => counts i j mod N) i)); [apply row_rounds; lia|].
      apply S; [exact Hi|lia].
    + intros j Hj. unfold col at 1 4. rewrite sum_add.
      apply (rounded_rounds N _ _ _ (col M (fun i j => counts i j mod N) j)); [apply col_rounds; lia|].
      apply R; [exact Hj|lia].
Qed.

(** T8a: halving keeps a split equitable *)
Theorem T8_split : forall M steps N counts, 1 <= N -> equitable_parts M N counts (split M steps N counts).
Proof.
  intros M. induction steps as [|steps IH]; intros N counts HN; [now apply T8_by_edges|]. cbn [split].
  destruct (Nat.eqb_spec (N mod 2) 0) as [Even|]; [|now apply T8_by_edges].
  destruct (T8_halve M counts) as (Parts & Rows & Cols). cbv zeta. set (s := halve M counts) in *.
  assert (EN : N = N / 2 + N / 2) by lia. assert (HN2 : 1 <= N / 2) by lia.
  set (n := N / 2) in *. clearbody n. subst N.
  destruct (IH n (one s) HN2) as (L1 & S1 & E1). destruct (IH n (two s) HN2) as (L2 & S2 & E2).
  split; [rewrite app_length; lia|]. split.
  - intros i j Hi Hj. rewrite map_app, list_sum_app, S1, S2 by auto. auto.
  - intros part Hin. apply in_app_iff in Hin. split; intros v Hv; destruct Hin as [Hin|Hin].
    + apply (rounded_twice n _ (row M (one s) v)); [now apply Rows|now apply (E1 part Hin)].
    + apply (rounded_twice n _ (row M (two s) v)); [now apply Rows|now apply (E2 part Hin)].
    + apply (rounded_twice n _ (col M (one s) v)); [now apply Cols|now apply (E1 part Hin)].
    + apply (rounded_twice n _ (col M (two s) v)); [now apply Cols|now apply (E2 part Hin)].
Qed.

Lemma sum_nth n : forall parts (f : (nat -> nat -> nat) -> nat), length parts = n ->
  sum n (fun i => f (nth i parts nothing)) = list_sum (map f parts).
Proof.
  induction n as [|n IH]; intros parts f H.
  - now destruct parts.
  - destruct (exists_last (l := parts)) as (l & a & ->); [now intros ->|].
    rewrite app_length in H. simpl in H. rewrite map_app, list_sum_app. simpl.
    rewrite app_nth2 by lia. replace (n - length l) with 0 by lia. simpl.
    rewrite <- (IH l f) by lia. f_equal; [|lia]. apply sum_ext. intros i Hi. now rewrite app_nth1 by lia.
Qed.

(** T8a: what the program makes of equal chunks is a plan, and every NIC carries floor or ceiling of
    its node's chunks over the rails, on both sides at once *)
Theorem T8_program : forall M N D, 1 <= N ->
  let x := fun i j n => nth n (rail_counts M N D) nothing i j in
  feasible M N D x /\
  (forall i n, i < M -> n < N ->
     N * Snd M x i n < row M D i + N /\ row M D i < N * Snd M x i n + N) /\
  (forall j n, j < M -> n < N ->
     N * Rcv M x j n < col M D j + N /\ col M D j < N * Rcv M x j n + N).
Proof.
  intros M N D HN x. destruct (T8_split M N N (fun i j => D i j mod N) HN) as (Len & Sum & Each).
  unfold x, rail_counts. set (parts := split M N N _) in *. clearbody parts.
  set (add := fun (part : nat -> nat -> nat) i j => D i j / N + part i j).
  assert (Nth : forall n, n < N -> nth n (map add parts) nothing = add (nth n parts nothing)).
  { intros n Hn. rewrite (nth_indep _ nothing (add nothing)) by (rewrite map_length; lia). apply map_nth. }
  split; [|split].
  - intros i j Hi Hj.
    rewrite (sum_ext N _ (fun n => D i j / N + nth n parts nothing i j)) by (intros n Hn; now rewrite Nth).
    rewrite sum_add, sum_const, (sum_nth N parts (fun part => part i j) Len), Sum by auto.
    symmetry. apply Nat.div_mod. lia.
  - intros i n Hi Hn. unfold Snd. rewrite Nth by exact Hn. unfold add. rewrite sum_add.
    apply (rounded_rounds N _ _ _ (row M (fun i j => D i j mod N) i)); [apply row_rounds; lia|].
    apply (Each (nth n parts nothing)); [apply nth_In; lia|exact Hi].
  - intros j n Hj Hn. unfold Rcv. rewrite Nth by exact Hn. unfold add. rewrite sum_add.
    apply (rounded_rounds N _ _ _ (col M (fun i j => D i j mod N) j)); [apply col_rounds; lia|].
    apply (Each (nth n parts nothing)); [apply nth_In; lia|exact Hj].
Qed.
