(** * T8: equal chunks, floor or ceiling at every node and rail, on both sides at once

    Split every node into copies of degree at most N (its j-th edge goes to copy j/N),
    colour the copies properly with N colours (Koenig), and merge them again: a full copy
    sees each colour once, and there is at most one copy that is not full. *)
From Coq Require Import Arith Lia List Bool Permutation.
From Rails Require Import Sums Model Koenig.
Import ListNotations.

(** ** Splitting the nodes *)
Definition eqP (x y : nat * nat) : {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.

Definition dg (key : nat * nat -> nat) (E : list (nat * nat)) (k : nat) : nat :=
  length (filter (fun e => key e =? k) E).

(* the j-th edge of vertex k goes to its copy (k, j / N) *)
Fixpoint splitE (N : nat) (E : list (nat * nat)) : list ((nat * nat) * (nat * nat)) :=
  match E with
  | [] => []
  | e :: E => ((fst e, dg fst E (fst e) / N), (snd e, dg snd E (snd e) / N)) :: splitE N E
  end.

Lemma split_deg_step N d q : 1 <= N ->
  (if d / N =? q then 1 else 0) + Nat.min N (d - q * N) = Nat.min N (S d - q * N).
Proof.
  intros HN. pose proof (Nat.div_mod d N ltac:(lia)). pose proof (Nat.mod_upper_bound d N ltac:(lia)).
  set (r := d mod N) in *. set (p := d / N) in *. clearbody r p. subst d.
  destruct (Nat.eqb_spec p q) as [->|Hne].
  - replace (N * q + r - q * N) with r by lia. replace (S (N * q + r) - q * N) with (S r) by lia. lia.
  - destruct (le_lt_dec p q).
    + assert (p + 1 <= q) by lia. assert (N * p + N <= q * N) by nia. lia.
    + assert (q + 1 <= p) by lia. assert (q * N + N <= N * p) by nia. lia.
Qed.

Lemma eqbP a b k q : eqb eqP (a, b) (k, q) = (a =? k) && (b =? q).
Proof.
  unfold eqb. destruct (eqP (a, b) (k, q)) as [E|E].
  - injection E as -> ->. now rewrite !Nat.eqb_refl.
  - destruct (Nat.eqb_spec a k), (Nat.eqb_spec b q); subst; auto; now contradiction E.
Qed.

Lemma split_deg N E k q : 1 <= N ->
  ldeg eqP (splitE N E) (k, q) = Nat.min N (dg fst E k - q * N) /\
  rdeg eqP (splitE N E) (k, q) = Nat.min N (dg snd E k - q * N).
Proof.
  intros HN. induction E as [|[a b] E [IL IR]]; [unfold ldeg, rdeg, dg; simpl; lia|].
  assert (Ed : forall key c, dg key ((a, b) :: E) c = (if key (a, b) =? c then 1 else 0) + dg key E c).
  { intros key c. unfold dg. cbn [filter]. destruct (key (a, b) =? c); reflexivity. }
  rewrite !Ed. clear Ed. cbn [fst snd splitE]. split.
  - transitivity ((if (a =? k) && (dg fst E a / N =? q) then 1 else 0) + ldeg eqP (splitE N E) (k, q)).
    + unfold ldeg. cbn [filter fst]. rewrite eqbP. destruct ((a =? k) && _); reflexivity.
    + rewrite IL. destruct (Nat.eqb_spec a k) as [->|]; [|reflexivity]. now apply split_deg_step.
  - transitivity ((if (b =? k) && (dg snd E b / N =? q) then 1 else 0) + rdeg eqP (splitE N E) (k, q)).
    + unfold rdeg. cbn [filter snd]. rewrite eqbP. destruct ((b =? k) && _); reflexivity.
    + rewrite IR. destruct (Nat.eqb_spec b k) as [->|]; [|reflexivity]. now apply split_deg_step.
Qed.

Lemma NoDup_map_filter {A B} (g : A -> B) P l : NoDup (map g l) -> NoDup (map g (filter P l)).
Proof.
  induction l as [|a l IH]; simpl; intros H; auto. inversion_clear H as [|? ? Hn Hd].
  destruct (P a); simpl; auto. constructor; auto. intros Hin. apply Hn.
  apply in_map_iff in Hin. destruct Hin as [z [E Hz]]. apply filter_In in Hz.
  apply in_map_iff. exists z. tauto.
Qed.

Lemma filter_map_length {A B} (g : A -> B) P l :
  length (filter P (map g l)) = length (filter (fun a => P (g a)) l).
Proof. induction l as [|a l IH]; simpl; auto. destruct (P (g a)); simpl; auto. Qed.

(** how often colour c occurs at all copies of vertex k *)
Lemma copies_count (key : (nat * nat) * (nat * nat) -> nat * nat) N d k c
  (G : list (((nat * nat) * (nat * nat)) * nat)) :
  1 <= N -> c < N ->
  NoDup (map (fun e => (key (fst e), snd e)) G) -> Forall (fun e => snd e < N) G ->
  (forall q, length (filter (fun e => eqb eqP (key e) (k, q)) (map fst G)) = Nat.min N (d - q * N)) ->
  let cnt := length (filter (fun e => (fst (key (fst e)) =? k) && (snd e =? c)) G) in
  N * cnt < d + N /\ d < N * cnt + N.
Proof.
  intros HN Hc ND FN Deg cnt.
  set (P := fun e : ((nat * nat) * (nat * nat)) * nat => (fst (key (fst e)) =? k) && (snd e =? c)) in *.
  set (qs := map (fun e => snd (key (fst e))) (filter P G)).
  assert (Lq : length qs = cnt) by (unfold qs; now rewrite map_length).
  assert (NDq : NoDup qs).
  { apply (NoDup_map_inv (fun q => ((k, q), c))). unfold qs. rewrite map_map.
    rewrite (map_ext_in _ (fun e => (key (fst e), snd e))); [now apply NoDup_map_filter|].
    intros e He. apply filter_In in He. destruct He as [_ He]. unfold P in He.
    apply andb_prop in He. destruct He as [H1 H2]. apply Nat.eqb_eq in H1, H2.
    destruct (key (fst e)) as [k' q']. simpl in *. now subst. }
  split.
  - (* at most ceil(d/N) copies *)
    assert (I : incl qs (seq 0 ((d + N - 1) / N))).
    { intros q Hq. unfold qs in Hq. apply in_map_iff in Hq. destruct Hq as [e [Eq He]].
      apply filter_In in He. destruct He as [HG HP]. unfold P in HP. apply andb_prop in HP.
      destruct HP as [H1 _]. apply Nat.eqb_eq in H1.
      assert (Hd : 1 <= Nat.min N (d - q * N)).
      { rewrite <- Deg. rewrite filter_map_length.
        assert (HI : In e (filter (fun a => eqb eqP (key (fst a)) (k, q)) G)).
        { apply filter_In. split; auto. apply eqb_eq. destruct (key (fst e)); simpl in *; congruence. }
        destruct (filter (fun a => eqb eqP (key (fst a)) (k, q)) G); [destruct HI|simpl; lia]. }
      apply in_seq. split; [lia|]. simpl. apply Nat.lt_le_trans with (q + 1); [lia|].
      apply Nat.div_le_lower_bound; nia. }
    apply NoDup_incl_length in I; auto. rewrite seq_length, Lq in I.
    pose proof (Nat.mul_div_le (d + N - 1) N ltac:(lia)). nia.
  - (* every full copy carries colour c *)
    assert (I : incl (seq 0 (d / N)) qs).
    { intros q Hq. apply in_seq in Hq. simpl in Hq.
      assert (Hd : N <= d - q * N).
      { pose proof (Nat.mul_div_le d N ltac:(lia)). nia. }
      set (l := filter (fun e : ((nat * nat) * (nat * nat)) * nat => eqb eqP (key (fst e)) (k, q)) G).
      assert (Ll : length l = N).
      { unfold l. rewrite <- (filter_map_length fst (fun e => eqb eqP (key e) (k, q))), Deg. lia. }
      assert (NDl : NoDup (map snd l)).
      { apply (NoDup_map_inv (fun c => ((k, q), c))). rewrite map_map.
        rewrite (map_ext_in _ (fun e => (key (fst e), snd e))); [now apply NoDup_map_filter|].
        intros e He. apply filter_In in He. destruct He as [_ He]. apply eqb_eq in He. now rewrite He. }
      assert (Il : incl (map snd l) (seq 0 N)).
      { intros a Ha. apply in_map_iff in Ha. destruct Ha as [e [<- He]]. apply filter_In in He.
        rewrite Forall_forall in FN. apply in_seq. specialize (FN e (proj1 He)). lia. }
      assert (J : incl (seq 0 N) (map snd l)).
      { apply NoDup_length_incl; auto. rewrite map_length, seq_length. lia. }
      specialize (J c). assert (Hin : In c (map snd l)) by (apply J, in_seq; lia).
      apply in_map_iff in Hin. destruct Hin as [e [Ec He]]. apply filter_In in He.
      destruct He as [HG He]. apply eqb_eq in He. unfold qs. apply in_map_iff. exists e.
      rewrite He. split; auto. apply filter_In. split; auto. unfold P. rewrite He, Ec. simpl.
      now rewrite !Nat.eqb_refl. }
    apply NoDup_incl_length in I; [|apply seq_NoDup]. rewrite seq_length, Lq in I.
    pose proof (Nat.mul_succ_div_gt d N ltac:(lia)). nia.
Qed.

(** equitable colouring of a chunk list: of its nodes' copies, merged again *)
Definition coloured (N : nat) (E : list (nat * nat)) : list ((nat * nat) * nat) :=
  map (fun e => ((fst (fst (fst e)), fst (snd (fst e))), snd e)) (colouring eqP N (splitE N E)).

Theorem equitable : forall N (E : list (nat * nat)), 1 <= N ->
  let H := coloured N E in map fst H = E /\ Forall (fun e => snd e < N) H /\
  (forall k n, n < N ->
     let s := length (filter (fun e => (fst (fst e) =? k) && (snd e =? n)) H) in
     N * s < dg fst E k + N /\ dg fst E k < N * s + N) /\
  (forall f n, n < N ->
     let r := length (filter (fun e => (snd (fst e) =? f) && (snd e =? n)) H) in
     N * r < dg snd E f + N /\ dg snd E f < N * r + N).
Proof.
  intros N E HN.
  assert (DL : forall u, ldeg eqP (splitE N E) u <= N).
  { intros [k q]. rewrite (proj1 (split_deg N E k q HN)). lia. }
  assert (DR : forall v, rdeg eqP (splitE N E) v <= N).
  { intros [k q]. rewrite (proj2 (split_deg N E k q HN)). lia. }
  destruct (colouring_ok eqP N (splitE N E) DL DR) as (EG & [PU PV] & FG).
  set (G := colouring eqP N (splitE N E)) in *.
  set (h := fun e : ((nat * nat) * (nat * nat)) * nat =>
              ((fst (fst (fst e)), fst (snd (fst e))), snd e)).
  change (coloured N E) with (map h G). split; [|split; [|split]].
  - rewrite map_map. unfold h. simpl.
    rewrite <- (map_map fst (fun e : (nat * nat) * (nat * nat) => (fst (fst e), fst (snd e)))), EG.
    clear. induction E as [|[k f] E IH]; simpl; [auto|now rewrite IH].
  - apply Forall_map. exact FG.
  - intros k n Hn s. unfold s. rewrite filter_map_length.
    apply (copies_count fst N (dg fst E k) k n G HN Hn PU FG).
    intros q. rewrite EG. exact (proj1 (split_deg N E k q HN)).
  - intros f n Hn r. unfold r. rewrite filter_map_length.
    apply (copies_count snd N (dg snd E f) f n G HN Hn PV FG).
    intros q. rewrite EG. exact (proj2 (split_deg N E f q HN)).
Qed.

(** ** Back to the rail model *)
Definition chunks (M : nat) (D : nat -> nat -> nat) : list (nat * nat) :=
  flat_map (fun k => flat_map (fun f => repeat (k, f) (D k f)) (seq 0 M)) (seq 0 M).

Lemma filter_flat_map {A} (P : A -> bool) g n :
  length (filter P (flat_map g (seq 0 n))) = sum n (fun i => length (filter P (g i))).
Proof.
  induction n as [|n IH]; auto.
  rewrite seq_S, flat_map_app, filter_app, app_length, IH. simpl. now rewrite app_nil_r.
Qed.

Lemma filter_repeat {A} (P : A -> bool) a m :
  length (filter P (repeat a m)) = if P a then m else 0.
Proof. induction m as [|m IH]; simpl; destruct (P a); simpl; auto. Qed.

Lemma chunks_count P M D :
  length (filter P (chunks M D)) = sum M (fun k => sum M (fun f => if P (k, f) then D k f else 0)).
Proof.
  unfold chunks. rewrite filter_flat_map. apply sum_ext. intros k _.
  rewrite filter_flat_map. apply sum_ext. intros f _. apply filter_repeat.
Qed.

Lemma count_part {A} (P : A -> bool) (g : A -> nat) m l :
  (forall e, In e l -> g e < m) ->
  sum m (fun j => length (filter (fun e => P e && (g e =? j)) l)) = length (filter P l).
Proof.
  induction l as [|e l IH]; intros H.
  - apply sum_0. auto.
  - simpl. transitivity ((if P e then 1 else 0) + length (filter P l));
      [|destruct (P e); reflexivity].
    rewrite <- IH by (intros; apply H; now right).
    rewrite (sum_ext m _ (fun j => (if P e then 1 else 0) * (if j =? g e then 1 else 0)
        + length (filter (fun e => P e && (g e =? j)) l))).
    + rewrite sum_add, <- sum_mul, sum_ind.
      pose proof (H e (or_introl eq_refl)) as Hm. apply Nat.ltb_lt in Hm. rewrite Hm. lia.
    + intros j _. rewrite (Nat.eqb_sym (g e) j). destruct (P e), (j =? g e); simpl; lia.
Qed.

(** how many chunks from k to f a colouring puts on rail n *)
Definition on_rail (H : list ((nat * nat) * nat)) (k f n : nat) : nat :=
  length (filter (fun e => (fst (fst e) =? k) && (snd (fst e) =? f) && (snd e =? n)) H).

(** the chunks of the demands, in any order, coloured: a split with floor or ceiling everywhere *)
Theorem T8_coloured : forall M N D E, 1 <= N -> Permutation (chunks M D) E ->
  let x := on_rail (coloured N E) in
  feasible M N D x /\
  (forall k n, k < M -> n < N ->
     N * Snd M x k n < row M D k + N /\ row M D k < N * Snd M x k n + N) /\
  (forall f n, f < M -> n < N ->
     N * Rcv M x f n < col M D f + N /\ col M D f < N * Rcv M x f n + N).
Proof.
  intros M N D E HN Perm. destruct (equitable N E HN) as (EH & FH & HS & HR).
  set (H := coloured N E) in *. clearbody H. cbv zeta.
  assert (E_count : forall P, length (filter P E)
    = sum M (fun k => sum M (fun f => if P (k, f) then D k f else 0))).
  { intros P. rewrite <- chunks_count. clear - Perm. induction Perm as [|a l l' _ IH|a b l|l l' l'' _ IH _ IH'];
      simpl; [reflexivity| | |congruence].
    - destruct (P a); simpl; congruence.
    - destruct (P a), (P b); reflexivity. }
  rewrite Forall_forall in FH.
  assert (In_lt : forall e, In e H -> fst (fst e) < M /\ snd (fst e) < M).
  { intros e He. assert (Hin : In (fst e) (chunks M D)).
    { apply (Permutation_in _ (Permutation_sym Perm)). rewrite <- EH. now apply in_map. }
    unfold chunks in Hin. apply in_flat_map in Hin. destruct Hin as [k [Hk Hin]].
    apply in_flat_map in Hin. destruct Hin as [f [Hf Hin]]. apply repeat_spec in Hin.
    rewrite Hin. apply in_seq in Hk, Hf. simpl. lia. }
  split; [|split].
  - intros k f Hk Hf. unfold on_rail.
    rewrite (count_part (fun e => (fst (fst e) =? k) && (snd (fst e) =? f)) snd N H FH).
    rewrite <- (filter_map_length fst (fun e => (fst e =? k) && (snd e =? f))), EH, E_count. simpl.
    rewrite (sum_ext M _ (fun i => if i =? k then D k f else 0)).
    + now apply (sum_pick M k (fun _ => D k f)).
    + intros i _. destruct (Nat.eqb_spec i k) as [->|]; simpl.
      * now apply (sum_pick M f (fun j => D k j)).
      * now apply sum_0.
  - intros k n Hk Hn. specialize (HS k n Hn). cbv zeta in HS.
    assert (Er : dg fst E k = row M D k).
    { unfold dg. rewrite E_count. simpl.
      rewrite (sum_ext M _ (fun i => if i =? k then row M D i else 0)).
      - now apply sum_pick.
      - intros i _. destruct (i =? k); [reflexivity|now apply sum_0]. }
    assert (Es : Snd M (on_rail H) k n
      = length (filter (fun e => (fst (fst e) =? k) && (snd e =? n)) H)).
    { unfold Snd, on_rail. rewrite <- (count_part _ (fun e => snd (fst e)) M H).
      - apply sum_ext. intros f _. f_equal. apply filter_ext. intros e.
        destruct (fst (fst e) =? k), (snd (fst e) =? f), (snd e =? n); reflexivity.
      - intros e He. apply (In_lt e He). }
    rewrite Es, <- Er. exact HS.
  - intros f n Hf Hn. specialize (HR f n Hn). cbv zeta in HR.
    assert (Er : dg snd E f = col M D f).
    { unfold dg. rewrite E_count. simpl. unfold col. apply sum_ext. intros i _.
      now apply (sum_pick M f (fun j => D i j)). }
    assert (Es : Rcv M (on_rail H) f n
      = length (filter (fun e => (snd (fst e) =? f) && (snd e =? n)) H)).
    { unfold Rcv, on_rail. rewrite <- (count_part _ (fun e => fst (fst e)) M H).
      - apply sum_ext. intros k _. f_equal. apply filter_ext. intros e.
        destruct (fst (fst e) =? k), (snd (fst e) =? f), (snd e =? n); reflexivity.
      - intros e He. apply (In_lt e He). }
    rewrite Es, <- Er. exact HR.
Qed.

(** T8: demands counted in equal chunks can be split so that on EVERY node and rail
    the chunks sent and received are floor or ceil of the node's total over N. *)
Theorem T8_equitable : forall M N D, 1 <= N ->
  exists x, feasible M N D x /\
  (forall k n, k < M -> n < N ->
     N * Snd M x k n < row M D k + N /\ row M D k < N * Snd M x k n + N) /\
  (forall f n, f < M -> n < N ->
     N * Rcv M x f n < col M D f + N /\ col M D f < N * Rcv M x f n + N).
Proof.
  intros M N D HN. exists (on_rail (coloured N (chunks M D))).
  exact (T8_coloured M N D (chunks M D) HN (Permutation_refl _)).
Qed.

(** T4 for this split: whatever the number of nodes and senders, less than one chunk above the average *)
Theorem T4_equitable : forall M N D, 1 <= N ->
  exists x, feasible M N D x /\
  (forall k n, k < M -> n < N -> N * Snd M x k n <= row M D k + (N - 1)) /\
  (forall f n, f < M -> n < N -> N * Rcv M x f n <= col M D f + (N - 1)).
Proof.
  intros M N D HN. destruct (T8_equitable M N D HN) as (x & F & S & R). exists x. split; [exact F|].
  split; intros v n Hv Hn; [specialize (S v n Hv Hn)|specialize (R v n Hv Hn)]; lia.
Qed.
