(** * T15: copies of experts in spare slots

    [R] GPUs hold some of [E] experts; a micro-batch has [c e] tokens for expert [e].  A GPU may take
    copies of further experts into its spare slots; then every token goes to a GPU that has its
    expert. *)
From Coq Require Import Arith Lia List Bool Sorting.Sorted.
From Rails Require Import Sums.
Import ListNotations.

Section Spare.
  Variables R E : nat.
  Variable c : nat -> nat.

  (** who holds what, who may take a copy of what, and how many *)
  Record slots := Slots {
    holds : nat -> nat -> bool;
    may : nat -> nat -> bool;
    spare : nat -> nat }.

  (** copies [y], and [x r e] tokens of expert [e] on GPU [r] *)
  Definition plan (k : slots) (y : nat -> nat -> bool) (x : nat -> nat -> nat) : Prop :=
    (forall r e, r < R -> e < E -> y r e = true -> may k r e = true) /\
    (forall r, r < R -> count E (y r) <= spare k r) /\
    (forall r e, r < R -> e < E -> 0 < x r e -> holds k r e || y r e = true) /\
    (forall e, e < E -> sum R (fun r => x r e) = c e).

  (** some GPU has more than [T] tokens, whatever the plan *)
  Definition exceeds (k : slots) (T : nat) : Prop :=
    forall y x, plan k y x -> exists r, r < R /\ T < sum E (x r).

  (** ** Room for a set of experts, a list without repetition *)
  Definition lsum (f : nat -> nat) (es : list nat) : nat := fold_right (fun e s => f e + s) 0 es.

  Lemma lsum_cons f e es : lsum f (e :: es) = f e + lsum f es.
  Proof. reflexivity. Qed.

  Lemma lsum_le f g es : (forall e, In e es -> f e <= g e) -> lsum f es <= lsum g es.
  Proof.
    induction es as [|e es IH]; intros H; simpl; [lia|].
    pose proof (H e (or_introl eq_refl)). pose proof (IH (fun a i => H a (or_intror i))). lia.
  Qed.

  Lemma lsum_counted f es : (forall e, In e es -> e < E) ->
    lsum f es = sum E (fun e => count_occ Nat.eq_dec es e * f e).
  Proof.
    induction es as [|a es IH]; intros H; simpl lsum.
    - symmetry. apply sum_0. reflexivity.
    - rewrite IH by (intros; apply H; now right).
      rewrite <- (sum_pick E a f) by (apply H; now left). rewrite <- sum_add. apply sum_ext. intros e _.
      simpl count_occ. destruct (Nat.eq_dec a e) as [->|N].
      + rewrite Nat.eqb_refl. lia.
      + destruct (Nat.eqb_spec e a); [congruence|lia].
  Qed.

  Lemma lsum_part f es : NoDup es -> (forall e, In e es -> e < E) -> lsum f es <= sum E f.
  Proof.
    intros N H. rewrite lsum_counted by exact H. apply sum_le. intros e _.
    pose proof (proj1 (NoDup_count_occ Nat.eq_dec es) N e). nia.
  Qed.

  Lemma lsum_swap (x : nat -> nat -> nat) es :
    sum R (fun r => lsum (x r) es) = lsum (fun e => sum R (fun r => x r e)) es.
  Proof.
    induction es as [|e es IH]; simpl.
    - apply sum_0. reflexivity.
    - rewrite sum_add, IH. reflexivity.
  Qed.

  (** what a GPU takes: what it holds, and the first that its slots may take *)
  Fixpoint takes (held could : nat -> bool) (left : nat) (es : list nat) : nat :=
    match es with
    | [] => 0
    | e :: es =>
        if held e then c e + takes held could left es
        else if could e then
          match left with
          | 0 => takes held could 0 es
          | S l => c e + takes held could l es
          end
        else takes held could left es
    end.

  Definition falling (es : list nat) : Prop := StronglySorted (fun a b => c b <= c a) es.

  Lemma one_slot_more held could most es : (forall e, In e es -> c e <= most) ->
    forall left, takes held could (S left) es <= most + takes held could left es.
  Proof.
    induction es as [|e es IH]; intros H left; simpl; [lia|].
    pose proof (H e (or_introl eq_refl)). pose proof (IH (fun a i => H a (or_intror i))) as I.
    destruct (held e); [specialize (I left); lia|].
    destruct (could e); [|apply I].
    destruct left as [|l]; [lia|]. specialize (I l). lia.
  Qed.

  Definition extra (held y : nat -> bool) (e : nat) : nat := if negb (held e) && y e then 1 else 0.
  Definition there (held y : nat -> bool) (e : nat) : nat := if held e || y e then c e else 0.

  Lemma takes_most held could y es : falling es ->
    (forall e, In e es -> y e = true -> could e = true) ->
    forall left, lsum (extra held y) es <= left -> lsum (there held y) es <= takes held could left es.
  Proof.
    intros F. induction F as [|e es F IH A]; intros C left H; [simpl; lia|].
    assert (I : forall left, lsum (extra held y) es <= left ->
        lsum (there held y) es <= takes held could left es) by (apply IH; intros; apply C; auto; now right).
    rewrite lsum_cons in *. assert (Ex : extra held y e = if negb (held e) && y e then 1 else 0) by reflexivity.
    assert (Th : there held y e = if held e || y e then c e else 0) by reflexivity.
    simpl takes. destruct (held e); simpl in Ex, Th.
    { specialize (I left ltac:(lia)). lia. }
    destruct (y e) eqn:Y.
    - rewrite (C e (or_introl eq_refl) Y). destruct left as [|l]; [lia|]. specialize (I l ltac:(lia)). lia.
    - specialize (I left ltac:(lia)). destruct (could e); [|lia].
      destruct left as [|l]; [lia|].
      pose proof (one_slot_more held could (c e) es (proj1 (Forall_forall _ _) A) l). lia.
  Qed.

  Definition room (k : slots) (T : nat) (es : list nat) : nat :=
    sum R (fun r => Nat.min (takes (holds k r) (may k r) (spare k r) es) T).

  Theorem T15_room : forall k T es,
    NoDup es -> falling es -> (forall e, In e es -> e < E) ->
    room k T es < lsum c es -> exceeds k T.
  Proof.
    intros k T es N F B H y x (Y & S & X & C).
    destruct (sum_pigeon R 0 (fun r => sum E (x r) - T)) as (r & Hr & P); [|exists r; lia].
    destruct (Nat.eq_dec (sum R (fun r => sum E (x r) - T)) 0) as [Z|]; [exfalso|lia].
    assert (L : forall r, r < R -> sum E (x r) <= T).
    { intros r Hr. pose proof (sum_single R (fun r => sum E (x r) - T) r Hr). simpl in *. lia. }
    assert (E1 : lsum c es = sum R (fun r => lsum (x r) es)).
    { rewrite lsum_swap. apply Nat.le_antisymm; apply lsum_le; intros e He; rewrite C by auto; lia. }
    assert (lsum c es <= room k T es); [|lia].
    rewrite E1. apply sum_le. intros r Hr. apply Nat.min_glb.
    - apply Nat.le_trans with (lsum (there (holds k r) (y r)) es).
      + apply lsum_le. intros e He. unfold there. specialize (X r e Hr (B e He)).
        destruct (holds k r e || y r e) eqn:Q.
        * rewrite <- (C e (B e He)). apply (sum_single R (fun r => x r e) r Hr).
        * destruct (x r e); [lia|]. exfalso. discriminate X. lia.
      + apply takes_most; auto. apply Nat.le_trans with (count E (y r)); [|now apply S].
        apply Nat.le_trans with (lsum (fun e => if y r e then 1 else 0) es).
        * apply lsum_le. intros e _. unfold extra. destruct (holds k r e), (y r e); simpl; lia.
        * now apply lsum_part.
    - apply Nat.le_trans with (sum E (x r)); [now apply lsum_part|now apply L].
  Qed.

  (** ** With a copy, and without *)
  Definition is (r e r' e' : nat) : bool := (r' =? r) && (e' =? e).

  Definition with_copy (k : slots) (r e : nat) : slots :=
    Slots (fun r' e' => is r e r' e' || holds k r' e') (may k)
      (fun r' => if r' =? r then pred (spare k r) else spare k r').

  Definition without_copy (k : slots) (r e : nat) : slots :=
    Slots (holds k) (fun r' e' => negb (is r e r' e') && may k r' e') (spare k).

  Lemma count_but P e : e < E -> P e = true -> S (count E (fun i => negb (i =? e) && P i)) = count E P.
  Proof.
    intros He P1. unfold count.
    rewrite (sum_ext E (fun i => if P i then 1 else 0)
      (fun i => (if negb (i =? e) && P i then 1 else 0) + (if i =? e then 1 else 0))).
    - rewrite sum_add, sum_ind. apply Nat.ltb_lt in He. rewrite He. lia.
    - intros i _. destruct (Nat.eqb_spec i e) as [->|]; [rewrite P1|destruct (P i)]; simpl; lia.
  Qed.

  Theorem T15_cases : forall k T r e, r < R -> e < E ->
    exceeds (with_copy k r e) T -> exceeds (without_copy k r e) T -> exceeds k T.
  Proof.
    intros k T r e Hr He W O y x (Y & S & X & C). destruct (y r e) eqn:Q.
    - apply (W (fun r' e' => negb (is r e r' e') && y r' e') x). repeat split; [| | |exact C].
      + intros r' e' Hr' He' H. apply andb_true_iff in H. now apply Y.
      + intros r' Hr'. simpl. unfold is. destruct (Nat.eqb_spec r' r) as [->|]; simpl.
        * pose proof (count_but (y r) e He Q). specialize (S r Hr). lia.
        * now apply S.
      + intros r' e' Hr' He' H. simpl. specialize (X r' e' Hr' He' H). unfold is in *.
        destruct ((r' =? r) && (e' =? e)); simpl; auto.
    - apply (O y x). repeat split; [| exact S | exact X | exact C].
      intros r' e' Hr' He' H. simpl. unfold is.
      destruct (Nat.eqb_spec r' r) as [->|], (Nat.eqb_spec e' e) as [->|]; simpl; auto. congruence.
  Qed.

  (** ** The check of a witness, as the kernel does it *)
  Inductive witness := Room (es : list nat) | Cases (e r : nat) (with_it without_it : witness).

  (** most tokens first, of as many the first expert: so none stands twice *)
  Definition before (e a : nat) : Prop := c a < c e \/ (c a = c e /\ e < a).
  Fixpoint sorted (es : list nat) : bool :=
    match es with
    | e :: es => match es with a :: _ => ((c a <? c e) || ((c a =? c e) && (e <? a))) && sorted es | [] => true end
    | [] => true
    end.

  Lemma sorted_before es : sorted es = true -> StronglySorted before es.
  Proof.
    intros H. apply Sorted_StronglySorted; [unfold before; intros a b d; lia|].
    induction es as [|e es IH]; constructor; (destruct es as [|a es]; [now constructor|]);
      apply andb_true_iff in H as [H S].
    - now apply IH.
    - constructor. apply orb_true_iff in H as [H|H]; [left; now apply Nat.ltb_lt|right].
      apply andb_true_iff in H as [H L]. split; [now apply Nat.eqb_eq|now apply Nat.ltb_lt].
  Qed.

  Lemma sorted_falling es : sorted es = true -> falling es.
  Proof.
    intros H. apply sorted_before in H. induction H as [|e es S IH F]; constructor; auto.
    eapply Forall_impl; [|exact F]. unfold before. intros a. cbv beta. lia.
  Qed.

  Lemma sorted_distinct es : sorted es = true -> NoDup es.
  Proof.
    intros H. apply sorted_before in H. induction H as [|e es S IH F]; constructor; auto.
    intros I. rewrite Forall_forall in F. specialize (F e I). unfold before in F. lia.
  Qed.

  Fixpoint shows (k : slots) (T : nat) (w : witness) : bool :=
    match w with
    | Room es =>
        sorted es && forallb (fun e => e <? E) es && (room k T es <? lsum c es)
    | Cases e r w1 w2 =>
        (r <? R) && (e <? E) && shows (with_copy k r e) T w1 && shows (without_copy k r e) T w2
    end.

  Theorem T15_witness : forall k T w, shows k T w = true -> exceeds k T.
  Proof.
    intros k T w. revert k. induction w as [es|e r w1 I1 w2 I2]; intros k H; simpl in H;
      repeat (apply andb_true_iff in H as [H ?]).
    - apply T15_room with es; [now apply sorted_distinct|now apply sorted_falling| |now apply Nat.ltb_lt].
      intros e I. apply Nat.ltb_lt. match goal with F : forallb _ _ = true |- _ =>
        exact (proj1 (forallb_forall _ _) F e I) end.
    - apply T15_cases with r e; [now apply Nat.ltb_lt|now apply Nat.ltb_lt|now apply I1|now apply I2].
  Qed.
End Spare.

(** ** As many spare slots as experts are enough *)
Section Enough.
  Variables R E m : nat.
  Variable home : nat -> nat.
  Hypothesis at_home : forall e, e < E -> home e < R.
  Hypothesis at_most : forall r, r < R -> count E (fun e => home e =? r) <= m.

  (** every expert on one GPU, [m] slots on each, any copy anywhere *)
  Definition homes (s : nat) : slots := Slots (fun r e => home e =? r) (fun _ _ => true) (fun _ => s).

  Lemma take f : forall n k, k <= sum n f -> exists g, (forall i, g i <= f i) /\ sum n g = k.
  Proof.
    induction n as [|n IH]; intros k H; simpl in H.
    - exists (fun _ => 0). split; [intros; lia|simpl; lia].
    - destruct (IH (Nat.min k (sum n f)) ltac:(lia)) as (g & G & S).
      exists (fun i => if i =? n then k - Nat.min k (sum n f) else g i). split.
      + intros i. destruct (Nat.eqb_spec i n) as [->|]; [lia|apply G].
      + simpl. rewrite Nat.eqb_refl, (sum_ext n _ g); [lia|].
        intros i Hi. destruct (Nat.eqb_spec i n); [lia|reflexivity].
  Qed.

  Definition own (d : nat -> nat) (r : nat) : nat := sum E (fun e => if home e =? r then d e else 0).
  Definition of_live (live : nat -> bool) (d : nat -> nat) : nat :=
    sum E (fun e => if live (home e) then d e else 0).

  Lemma own_live (live : nat -> bool) d :
    sum R (fun r => if live r then own d r else 0) = of_live live d.
  Proof.
    unfold own, of_live.
    rewrite (sum_ext R _ (fun r => sum E (fun e => if live r then if home e =? r then d e else 0 else 0))).
    2: { intros r _. destruct (live r); [reflexivity|symmetry; apply sum_0; reflexivity]. }
    rewrite sum_swap. apply sum_ext. intros e He.
    rewrite (sum_ext R _ (fun r => if r =? home e then (if live r then d e else 0) else 0)).
    - rewrite (sum_pick R (home e) (fun r => if live r then d e else 0)) by auto. reflexivity.
    - intros r _. rewrite (Nat.eqb_sym (home e)). destruct (r =? home e), (live r); reflexivity.
  Qed.

  (** GPUs that are live share what they have of [d] so that none has more than [T] *)
  Definition shared (live : nat -> bool) (d : nat -> nat) (T : nat) (x : nat -> nat -> nat) : Prop :=
    (forall r e, live r = false -> x r e = 0) /\
    (forall r e, live (home e) = false -> x r e = 0) /\
    (forall e, e < E -> live (home e) = true -> sum R (fun r => x r e) = d e) /\
    (forall r, r < R -> sum E (x r) <= T) /\
    (forall r, r < R -> count E (fun e => negb (home e =? r) && (0 <? x r e)) <= m).

  Lemma count_live_but (live : nat -> bool) j : j < R -> live j = true ->
    S (count R (fun r => negb (r =? j) && live r)) = count R live.
  Proof. intros Hj L. exact (count_but R live j Hj L). Qed.

  Lemma sharing : forall T n live d, count R live = n -> of_live live d <= n * T ->
    exists x, shared live d T x.
  Proof.
    intros T. induction n as [|n IH]; intros live d N H.
    { exists (fun _ _ => 0). assert (D : forall r, r < R -> live r = false).
      { intros r Hr. destruct (live r) eqn:L; [|reflexivity].
        pose proof (sum_single R (fun r => if live r then 1 else 0) r Hr) as P. cbv beta in P. rewrite L in P.
        unfold count in N. lia. }
      repeat split; auto.
      - intros e He L. rewrite D in L by auto. discriminate.
      - intros r _. rewrite sum_0 by auto. lia.
      - intros r _. unfold count. rewrite sum_0; [lia|]. intros e _. now rewrite andb_false_r. }
    destruct (le_lt_dec (sum R (fun r => if live r then own d r - T else 0)) 0) as [Z|P].
    { (* nobody has more than T: all stays at home *)
      exists (fun r e => if live r && (home e =? r) then d e else 0). repeat split.
      - intros r e L. now rewrite L.
      - intros r e L. destruct (Nat.eqb_spec (home e) r) as [<-|]; [now rewrite L|now rewrite andb_false_r].
      - intros e He L. rewrite (sum_ext R _ (fun r => if r =? home e then d e else 0)).
        + now rewrite (sum_pick R (home e) (fun _ => d e)) by auto.
        + intros r _. rewrite (Nat.eqb_sym (home e)). destruct (Nat.eqb_spec r (home e)) as [->|].
          * now rewrite L.
          * now rewrite andb_false_r.
      - intros r Hr. destruct (live r) eqn:L.
        + pose proof (sum_single R (fun r => if live r then own d r - T else 0) r Hr) as Q.
          cbv beta in Q. rewrite L in Q. unfold own in *. simpl. lia.
        + rewrite sum_0 by reflexivity. lia.
      - intros r _. unfold count. rewrite sum_0; [lia|]. intros e _.
        destruct (home e =? r); simpl; [reflexivity|]. now rewrite andb_false_r. }
    (* i gives, j takes *)
    destruct (sum_pigeon R 0 _ ltac:(rewrite Nat.mul_0_r; exact P)) as (i & Hi & I).
    destruct (live i) eqn:Li; [|lia].
    assert (J : exists j, j < R /\ live j = true /\ own d j < T).
    { destruct (sum_pigeon R 0 (fun r => if live r then T - own d r else 0)) as (j & Hj & J).
      2: { exists j. destruct (live j); [repeat split; auto; lia|lia]. }
      rewrite Nat.mul_0_r.
      assert (A : sum R (fun r => if live r then own d r else 0) + sum R (fun r => if live r then T - own d r else 0)
        = sum R (fun r => if live r then T else 0) + sum R (fun r => if live r then own d r - T else 0)).
      { rewrite <- !sum_add. apply sum_ext. intros r _. destruct (live r); lia. }
      rewrite own_live in A.
      assert (B : sum R (fun r => if live r then T else 0) = S n * T).
      { rewrite <- N. unfold count. rewrite Nat.mul_comm, sum_mul. apply sum_ext. intros r _. destruct (live r); lia. }
      lia. }
    destruct J as (j & Hj & Lj & J).
    assert (ij : i <> j) by (intros ->; lia).
    pose (f := fun e => if home e =? i then d e else 0).
    destruct (take f E (T - own d j)) as (g & G & SG).
    { change (sum E f) with (own d i). lia. }
    unfold f in G.
    set (d' := fun e => d e - g e). set (live' := fun r => negb (r =? j) && live r).
    assert (Lj' : live' j = false) by (unfold live'; now rewrite Nat.eqb_refl).
    assert (Gi : forall e, home e <> i -> g e = 0).
    { intros e D. specialize (G e). destruct (Nat.eqb_spec (home e) i); [congruence|lia]. }
    assert (Gd : forall e, g e <= d e) by (intros e; specialize (G e); destruct (home e =? i); lia).
    destruct (IH live' d') as (x & X1 & X2 & X3 & X4 & X5).
    { pose proof (count_live_but live j Hj Lj). unfold live'. lia. }
    { assert (of_live live d = of_live live' d' + own d j + sum E g); [|lia].
      unfold of_live, own. rewrite <- !sum_add. apply sum_ext. intros e He. unfold live', d'.
      specialize (Gi e). specialize (Gd e).
      destruct (Nat.eqb_spec (home e) j) as [D|D]; simpl.
      - rewrite D, Lj. rewrite Gi by congruence. lia.
      - destruct (live (home e)) eqn:L; [lia|]. rewrite Gi; [lia|]. intros Q. rewrite Q in L. congruence. }
    exists (fun r e => if r =? j then (if home e =? j then d e else g e) else x r e). repeat split.
    - intros r e L. destruct (Nat.eqb_spec r j) as [->|]; [congruence|]. apply X1. unfold live'. rewrite L. apply andb_false_r.
    - intros r e L. destruct (Nat.eqb_spec r j).
      + destruct (Nat.eqb_spec (home e) j) as [D|]; [rewrite D in L; congruence|].
        apply Gi. intros D. rewrite D in L. congruence.
      + apply X2. unfold live'. rewrite L. apply andb_false_r.
    - intros e He L.
      assert (S1 : sum R (fun r => if r =? j then (if home e =? j then d e else g e) else x r e)
        = (if home e =? j then d e else g e) + sum R (fun r => x r e)).
      { generalize (if home e =? j then d e else g e). intros v.
        rewrite (sum_ext R _ (fun r => (if r =? j then v else 0) + x r e)).
        - now rewrite sum_add, (sum_pick R j (fun _ => v) Hj).
        - intros r _. destruct (Nat.eqb_spec r j) as [->|]; [rewrite (X1 j e Lj')|]; lia. }
      rewrite S1. destruct (Nat.eqb_spec (home e) j) as [D|D].
      + rewrite (sum_0 R); [lia|]. intros r _. apply X2. rewrite D. exact Lj'.
      + rewrite X3; [unfold d'; specialize (Gd e); lia|exact He|].
        unfold live'. destruct (Nat.eqb_spec (home e) j); [congruence|exact L].
    - intros r Hr. destruct (Nat.eqb_spec r j) as [->|]; [|now apply X4].
      rewrite (sum_ext E _ (fun e => (if home e =? j then d e else 0) + g e)).
      + rewrite sum_add, SG. fold (own d j). lia.
      + intros e _. destruct (Nat.eqb_spec (home e) j) as [D|]; [|lia]. rewrite Gi; [lia|congruence].
    - intros r Hr. destruct (Nat.eqb_spec r j) as [->|]; [|now apply X5].
      apply Nat.le_trans with (count E (fun e => home e =? i)); [|now apply at_most].
      apply sum_le. intros e _. destruct (Nat.eqb_spec (home e) j) as [D|D]; simpl; [lia|].
      destruct (Nat.eqb_spec (home e) i) as [|D']; [destruct (0 <? g e); lia|]. now rewrite Gi.
  Qed.

  (** [m] slots on every GPU, [m] the most experts that a GPU holds: any tokens can be spread so
      that no GPU has more than [T], if [T] is not below the mean *)
  Theorem T15_enough : forall c T, sum E c <= R * T ->
    exists y x, plan R E c (homes m) y x /\ forall r, r < R -> sum E (x r) <= T.
  Proof.
    intros c T H. destruct (sharing T R (fun _ => true) c) as (x & _ & _ & X3 & X4 & X5).
    { unfold count. rewrite sum_const. lia. }
    { exact H. }
    exists (fun r e => negb (home e =? r) && (0 <? x r e)), x. split; [|exact X4].
    repeat split; auto. intros r e Hr He P. simpl. apply Nat.ltb_lt in P. rewrite P.
    now destruct (home e =? r).
  Qed.
End Enough.

Lemma sum_longer f n n' : n <= n' -> sum n f <= sum n' f.
Proof. induction 1; simpl; lia. Qed.

(** ** And no fewer: one GPU's [m] experts have nothing to do, all others have [R] tokens each *)
Theorem T15_no_fewer : forall R m k, 0 < m -> m < R ->
  let E := R * m in
  let c e := if e <? m then 0 else R in
  (forall r, r < R -> count E (fun e => holds k r e) = m) ->
  (forall e, e < m -> holds k 0 e = true) ->
  spare k 0 < m ->
  exists T, sum E c = R * T /\ exceeds R E c k T.
Proof.
  intros R m k M0 MR E c H1 H0 S.
  assert (C : forall n, sum (m + n) c = n * R).
  { induction n as [|n IH].
    - rewrite Nat.add_0_r. apply sum_0. intros e He. unfold c. destruct (Nat.ltb_spec e m); lia.
    - rewrite Nat.add_succ_r. simpl. rewrite IH. unfold c. destruct (Nat.ltb_spec (m + n) m); nia. }
  assert (Em : E = m + (R - 1) * m) by (unfold E; nia).
  exists ((R - 1) * m). split; [rewrite Em, C; nia|].
  intros y x (Y & P & X & T).
  assert (L : sum E (x 0) < (R - 1) * m).
  { apply Nat.le_lt_trans with (sum E (fun e => R * (if y 0 e then 1 else 0))).
    - apply sum_le. intros e He. specialize (X 0 e ltac:(lia) He).
      pose proof (sum_single R (fun r => x r e) 0 ltac:(lia)) as Q. cbv beta in Q. rewrite (T e He) in Q.
      unfold c in Q. destruct (Nat.ltb_spec e m); [lia|].
      destruct (y 0 e) eqn:Ye; [lia|]. destruct (x 0 e) eqn:Xe; [lia|]. exfalso.
      rewrite orb_false_r in X. specialize (X ltac:(lia)).
      (* GPU 0 holds the first m experts, which is all that it holds *)
      specialize (H1 0 ltac:(lia)).
      assert (m + 1 <= count E (fun e => holds k 0 e)); [|lia].
      unfold count. apply Nat.le_trans with (sum E (fun i => (if i <? m then 1 else 0) + (if i =? e then 1 else 0))).
      + rewrite sum_add, sum_ind. apply Nat.ltb_lt in He as He'. rewrite He'.
        pose proof (sum_longer (fun i => if i <? m then 1 else 0) m E ltac:(lia)) as Q2.
        rewrite (sum_ext m (fun i => if i <? m then 1 else 0) (fun _ => 1)), sum_const in Q2; [lia|].
        intros i Hi. destruct (Nat.ltb_spec i m); lia.
      + apply sum_le. intros i Hi. destruct (Nat.ltb_spec i m) as [A|A].
        * rewrite (H0 i A). destruct (Nat.eqb_spec i e); lia.
        * destruct (Nat.eqb_spec i e) as [->|]; [rewrite X|]; lia.
    - rewrite <- sum_mul. specialize (P 0 ltac:(lia)). unfold count in P. nia. }
  assert (A : sum R (fun r => sum E (x r)) = R * ((R - 1) * m)).
  { rewrite sum_swap, (sum_ext E _ c) by (intros; now apply T). rewrite Em, C. nia. }
  destruct (sum_pigeon R 0 (fun r => sum E (x r) - (R - 1) * m)) as (r & Hr & Q); [|exists r; split; [exact Hr|lia]].
  rewrite Nat.mul_0_r.
  destruct (Nat.eq_dec (sum R (fun r => sum E (x r) - (R - 1) * m)) 0) as [Z|]; [exfalso|lia].
  assert (B : sum R (fun r => sum E (x r) + (if r =? 0 then 1 else 0)) <= R * ((R - 1) * m)).
  { apply sum_le_const. intros r Hr.
    pose proof (sum_single R (fun r => sum E (x r) - (R - 1) * m) r Hr) as Q. cbv beta in Q.
    destruct (Nat.eqb_spec r 0) as [->|]; lia. }
  rewrite sum_add, sum_ind, A in B. destruct (Nat.ltb_spec 0 R); lia.
Qed.
