(** * Divisible traffic: the fluid problem and its dual certificate

    Chunks may be cut at will, so a split is rational.  Prices per byte at every NIC bound the
    time from below: all bytes cost at least so much, and in a unit of time all NICs together
    can't be paid more than so much. *)
From Coq Require Import Arith NArith QArith Lia Lqa List Bool.
From Rails Require Import QSums Jobs Certificate.
Import ListNotations.
Open Scope Q_scope.

(** ** Definitions *)
Section Fluid.
  Variables (M R : nat).                (* nodes, rails *)
  Variables (tx rx : nat -> nat -> Q).  (* rates of NIC n of node k *)
  Variable D : nat -> nat -> Q.         (* bytes from node k to node f *)

  (** [x k f n] of the bytes from [k] to [f] take rail [n] *)
  Definition split (x : nat -> nat -> nat -> Q) : Prop :=
    (forall k f n, (k < M)%nat -> (f < M)%nat -> (n < R)%nat -> 0 <= x k f n) /\
    (forall k f, (k < M)%nat -> (f < M)%nat -> qsum R (x k f) == D k f).

  (** every NIC is done by time [t] *)
  Definition in_time (x : nat -> nat -> nat -> Q) (t : Q) : Prop :=
    (forall k n, (k < M)%nat -> (n < R)%nat -> qsum M (fun f => x k f n) <= t * tx k n) /\
    (forall f n, (f < M)%nat -> (n < R)%nat -> qsum M (fun k => x k f n) <= t * rx f n).

  (** ** Weak duality *)
  Theorem T7_prices : forall (a b price : nat -> nat -> Q),
    (forall k n, (k < M)%nat -> (n < R)%nat -> 0 <= a k n) -> (forall f n, (f < M)%nat -> (n < R)%nat -> 0 <= b f n) ->
    (forall k f n, (k < M)%nat -> (f < M)%nat -> (n < R)%nat -> price k f <= a k n + b f n \/ tx k n == 0 \/ rx f n == 0) ->
    forall x t, split x -> in_time x t ->
    qsum M (fun k => qsum M (fun f => D k f * price k f)) <=
    t * (qsum M (fun k => qsum R (fun n => a k n * tx k n)) + qsum M (fun f => qsum R (fun n => b f n * rx f n))).
  Proof.
    intros a b price Ha Hb Hp x t [X0 XD] [TS TR].
    (* nothing moves on a dead NIC *)
    assert (Z1 : forall k f n, (k < M)%nat -> (f < M)%nat -> (n < R)%nat -> tx k n == 0 -> x k f n == 0).
    { intros k f n Hk Hf Hn E. apply Qle_antisym; [|now apply X0].
      pose proof (qsum_single M (fun f => x k f n) f Hf) as A. specialize (TS k n Hk Hn). rewrite E in TS.
      assert (x k f n <= qsum M (fun f => x k f n)) by (apply A; auto). lra. }
    assert (Z2 : forall k f n, (k < M)%nat -> (f < M)%nat -> (n < R)%nat -> rx f n == 0 -> x k f n == 0).
    { intros k f n Hk Hf Hn E. apply Qle_antisym; [|now apply X0].
      pose proof (qsum_single M (fun k => x k f n) k Hk) as A. specialize (TR f n Hf Hn). rewrite E in TR.
      assert (x k f n <= qsum M (fun k => x k f n)) by (apply A; auto). lra. }
    apply Qle_trans with (qsum M (fun k => qsum M (fun f => qsum R (fun n => x k f n * a k n + x k f n * b f n)))).
    { apply qsum_le. intros k Hk. apply qsum_le. intros f Hf. rewrite <- (XD k f Hk Hf), Qmult_comm, <- qsum_mul.
      apply qsum_le. intros n Hn. pose proof (X0 k f n Hk Hf Hn) as P.
      destruct (Hp k f n Hk Hf Hn) as [H|[H|H]].
      - rewrite Qmult_comm. rewrite <- Qmult_plus_distr_r, !(Qmult_comm (x k f n)). now apply Qmult_le_compat_r.
      - rewrite (Z1 k f n Hk Hf Hn H). lra.
      - rewrite (Z2 k f n Hk Hf Hn H). lra. }
    assert (E : qsum M (fun k => qsum M (fun f => qsum R (fun n => x k f n * a k n + x k f n * b f n))) ==
      qsum M (fun k => qsum R (fun n => a k n * qsum M (fun f => x k f n))) +
      qsum M (fun f => qsum R (fun n => b f n * qsum M (fun k => x k f n)))).
    { transitivity (qsum M (fun k => qsum M (fun f => qsum R (fun n => x k f n * a k n)))
                    + qsum M (fun k => qsum M (fun f => qsum R (fun n => x k f n * b f n)))).
      - rewrite <- qsum_add. apply qsum_ext. intros k _. rewrite <- qsum_add. apply qsum_ext. intros f _.
        now rewrite <- qsum_add.
      - apply Qplus_comp.
        + apply qsum_ext. intros k _. rewrite qsum_swap. apply qsum_ext. intros n _.
          rewrite <- qsum_mul. apply qsum_ext. intros f _. ring.
        + rewrite qsum_swap. apply qsum_ext. intros f _. rewrite qsum_swap. apply qsum_ext. intros n _.
          rewrite <- qsum_mul. apply qsum_ext. intros k _. ring. }
    rewrite E, Qmult_plus_distr_r, <- !qsum_mul. apply Qplus_le_compat; apply qsum_le; intros k Hk;
      rewrite <- qsum_mul; apply qsum_le; intros n Hn.
    - specialize (TS k n Hk Hn). specialize (Ha k n Hk Hn).
      setoid_replace (t * (a k n * tx k n)) with (a k n * (t * tx k n)) by ring.
      rewrite !(Qmult_comm (a k n)). now apply Qmult_le_compat_r.
    - specialize (TR k n Hk Hn). specialize (Hb k n Hk Hn).
      setoid_replace (t * (b k n * rx k n)) with (b k n * (t * rx k n)) by ring.
      rewrite !(Qmult_comm (b k n)). now apply Qmult_le_compat_r.
  Qed.
End Fluid.

(** ** The certificate: integer prices *)

Definition off_diagonal (demand : list (list N)) (k f : nat) : N := if (k =? f)%nat then 0%N else rate demand k f.

(** the cheapest live rail of a pair; 0 if there is none *)
Definition cheapest (R : nat) (tx rx a b : list (list N)) (k f : nat) : N :=
  let live := filter (fun n => (0 <? rate tx k n)%N && (0 <? rate rx f n)%N) (seq 0 R) in
  match map (fun n => (rate a k n + rate b f n)%N) live with [] => 0%N | p :: ps => fold_right N.min p ps end.

Definition cost (M R : nat) (tx rx a b : list (list N)) (D : nat -> nat -> N) : N :=
  nsum M (fun k => nsum M (fun f => (D k f * cheapest R tx rx a b k f)%N)).
Definition earned (M R : nat) (tx rx a b : list (list N)) : N :=
  (nsum M (fun k => nsum R (fun n => rate a k n * rate tx k n)) +
   nsum M (fun f => nsum R (fun n => rate b f n * rate rx f n)))%N.

Definition check_prices (M R : nat) (tx rx a b : list (list N)) (D : nat -> nat -> N) (p : N) (q : positive) : bool :=
  let e := earned M R tx rx a b in (0 <? e)%N && (p * e <=? Npos q * cost M R tx rx a b D)%N.

Definition nq2 (f : nat -> nat -> N) (k n : nat) : Q := nq (f k n).

Lemma min_le p ps x : In x (p :: ps) -> (fold_right N.min p ps <= x)%N.
Proof.
  induction ps as [|y ps IH]; [intros [->|[]]; simpl; lia|]. intros H. simpl.
  destruct H as [->|[->|H]]; [|lia|].
  - specialize (IH (or_introl eq_refl)). lia.
  - specialize (IH (or_intror H)). lia.
Qed.

Theorem T7_fluid : forall M R tx rx a b D p q, check_prices M R tx rx a b D p q = true ->
  forall x t, split M R (nq2 D) x -> in_time M R (nq2 (rate tx)) (nq2 (rate rx)) x t -> (Z.of_N p # q) <= t.
Proof.
  unfold check_prices. intros M R tx rx a b D p q H x t X T. apply andb_prop in H. destruct H as [He Hc].
  apply N.ltb_lt in He. apply N.leb_le in Hc.
  pose proof (T7_prices M R (nq2 (rate tx)) (nq2 (rate rx)) (nq2 D) (nq2 (rate a)) (nq2 (rate b))
    (nq2 (cheapest R tx rx a b))) as W.
  assert (W' : nq (cost M R tx rx a b D) <= t * nq (earned M R tx rx a b)).
  { unfold cost, earned. rewrite nq_add, !nsum_q.
    rewrite (qsum_ext M _ (fun k => qsum M (fun f => nq2 D k f * nq2 (cheapest R tx rx a b) k f))).
    2: { intros k _. rewrite nsum_q. apply qsum_ext. intros f _. unfold nq2. now rewrite nq_mul. }
    rewrite (qsum_ext M (fun k => nq (nsum R (fun n => (rate a k n * rate tx k n)%N)))
      (fun k => qsum R (fun n => nq2 (rate a) k n * nq2 (rate tx) k n))).
    2: { intros k _. rewrite nsum_q. apply qsum_ext. intros n _. unfold nq2. now rewrite nq_mul. }
    rewrite (qsum_ext M (fun f => nq (nsum R (fun n => (rate b f n * rate rx f n)%N)))
      (fun f => qsum R (fun n => nq2 (rate b) f n * nq2 (rate rx) f n))).
    2: { intros k _. rewrite nsum_q. apply qsum_ext. intros n _. unfold nq2. now rewrite nq_mul. }
    apply W with (x := x); auto; try (intros; apply nq_nonneg).
    intros k f n Hk Hf Hn. unfold nq2.
    destruct (N.eq_0_gt_0_cases (rate tx k n)) as [E|Ht]; [right; left; rewrite E; reflexivity|].
    destruct (N.eq_0_gt_0_cases (rate rx f n)) as [E|Hr]; [right; right; rewrite E; reflexivity|].
    left. rewrite <- nq_add. apply nq_le. unfold cheapest.
    assert (Hin : In (rate a k n + rate b f n)%N (map (fun n => (rate a k n + rate b f n)%N)
      (filter (fun n => (0 <? rate tx k n)%N && (0 <? rate rx f n)%N) (seq 0 R)))).
    { apply in_map_iff. exists n. split; auto. apply filter_In. split; [apply in_seq; lia|].
      apply andb_true_intro. split; now apply N.ltb_lt. }
    destruct (map _ _) as [|y ys]; [easy|]. now apply min_le. }
  apply nq_le in Hc. rewrite !nq_mul in Hc. apply nq_pos in He.
  assert (Eq : (Z.of_N p # q) == nq p / nq (Npos q)).
  { unfold nq. rewrite Qmake_Qdiv. reflexivity. }
  rewrite Eq. apply Qle_shift_div_r; [now apply nq_pos|].
  apply (Qmult_le_r _ _ (nq (earned M R tx rx a b))); [exact He|].
  eapply Qle_trans; [exact Hc|]. setoid_replace (t * nq (Npos q) * nq (earned M R tx rx a b)) with
    (nq (Npos q) * (t * nq (earned M R tx rx a b))) by ring.
  rewrite !(Qmult_comm (nq (Npos q))). apply Qmult_le_compat_r; [exact W'|apply nq_nonneg].
Qed.

(** ** The other half: a flow that attains a value

    Amounts are integers over one denominator [unit]. *)

Record parcel := Parcel { from : nat; to : nat; via : nat; amount : N }.
Definition parcels_of (l : list (N * N * N * N)) : list parcel :=
  map (fun c => Parcel (N.to_nat (fst (fst (fst c)))) (N.to_nat (snd (fst (fst c)))) (N.to_nat (snd (fst c))) (snd c)) l.

Definition moved (flow : list parcel) (k f n : nat) : N :=
  total (map amount (filter (fun c => (from c =? k) && (to c =? f) && (via c =? n))%nat flow)).

Definition upto (n : nat) (P : nat -> bool) : bool := forallb P (seq 0 n).
Definition check_flow (M R : nat) (tx rx : list (list N)) (D : nat -> nat -> N) (unit : positive)
    (flow : list parcel) (p : N) (q : positive) : bool :=
  upto M (fun k => upto M (fun f => (nsum R (moved flow k f) =? Npos unit * D k f)%N))
  && upto M (fun k => upto R (fun n => (Npos q * nsum M (fun f => moved flow k f n) <=? Npos unit * p * rate tx k n)%N))
  && upto M (fun f => upto R (fun n => (Npos q * nsum M (fun k => moved flow k f n) <=? Npos unit * p * rate rx f n)%N)).

Lemma upto_spec n P : upto n P = true -> forall i, (i < n)%nat -> P i = true.
Proof. unfold upto. rewrite forallb_forall. intros H i Hi. apply H, in_seq. lia. Qed.

Lemma nq_over a u : nq a / nq (Npos u) == Z.of_N a # u.
Proof. unfold nq. now rewrite Qmake_Qdiv. Qed.

Theorem T7_flow : forall M R tx rx D unit flow p q, check_flow M R tx rx D unit flow p q = true ->
  exists x, split M R (nq2 D) x /\ in_time M R (nq2 (rate tx)) (nq2 (rate rx)) x (Z.of_N p # q).
Proof.
  unfold check_flow. intros M R tx rx D unit flow p q H. apply andb_prop in H. destruct H as [H Hr].
  apply andb_prop in H. destruct H as [HD Hs].
  assert (U : 0 < nq (Npos unit)) by (now apply nq_pos).
  assert (Sum : forall m g, qsum m (fun i => nq (g i) / nq (Npos unit)) == nq (nsum m g) / nq (Npos unit)).
  { intros m g. rewrite nsum_q. unfold Qdiv. rewrite (Qmult_comm (qsum _ _)), <- qsum_mul.
    apply qsum_ext. intros. ring. }
  assert (Load : forall l v, (Npos q * l <= Npos unit * p * v)%N ->
    nq l / nq (Npos unit) <= (Z.of_N p # q) * nq v).
  { intros l v Hl. rewrite <- nq_over. apply Qle_shift_div_r; [exact U|].
    apply nq_le in Hl. rewrite !nq_mul in Hl. assert (Q0 : 0 < nq (Npos q)) by (now apply nq_pos).
    apply (Qmult_le_l _ _ (nq (Npos q))); [exact Q0|]. eapply Qle_trans; [exact Hl|].
    apply Qle_lteq. right. field. intros E. rewrite E in Q0. now apply Qlt_irrefl in Q0. }
  exists (fun k f n => nq (moved flow k f n) / nq (Npos unit)). split; split.
  - intros k f n _ _ _. apply Qle_shift_div_l; [exact U|]. rewrite Qmult_0_l. apply nq_nonneg.
  - intros k f Hk Hf. rewrite Sum. pose proof (upto_spec _ _ (upto_spec _ _ HD k Hk) f Hf) as E.
    apply N.eqb_eq in E. unfold nq2. rewrite E, nq_mul. field.
    intros Z. rewrite Z in U. now apply Qlt_irrefl in U.
  - intros k n Hk Hn. rewrite (Sum M (fun f => moved flow k f n)).
    pose proof (upto_spec _ _ (upto_spec _ _ Hs k Hk) n Hn) as E. apply N.leb_le in E. now apply Load.
  - intros f n Hf Hn. rewrite (Sum M (fun k => moved flow k f n)).
    pose proof (upto_spec _ _ (upto_spec _ _ Hr f Hf) n Hn) as E. apply N.leb_le in E. now apply Load.
Qed.

(** ** What no division can beat, no plan of whole chunks can *)

Definition tag (P : chunk -> bool) (c : chunk) : N := if P c then size c else 0%N.
Definition pair (k f : nat) (c : chunk) : bool := ((src c =? k) && (dst c =? f))%nat.
Definition demand_of (cs : list chunk) (k f : nat) : N := total (map (tag (pair k f)) cs).

Definition check_fluid (M R : nat) (tx rx a b : list (list N)) (cs : list chunk) (p : N) (q : positive) : bool :=
  forallb (fun c => (src c <? M) && (dst c <? M))%nat cs && check_prices M R tx rx a b (demand_of cs) p q.

Lemma total_tag P l : total (map (tag P) l) = total (map size (filter P l)).
Proof.
  induction l as [|c l IH]; [reflexivity|]. simpl map. rewrite total_cons, IH. unfold tag at 1. simpl.
  destruct (P c); reflexivity.
Qed.

Lemma nsum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> nsum n f = nsum n g.
Proof.
  intros H. induction n as [|n IH]; [reflexivity|]. rewrite !nsum_S, IH, H by auto. reflexivity.
Qed.

Lemma nsum_add n f g : nsum n (fun i => (f i + g i)%N) = (nsum n f + nsum n g)%N.
Proof. induction n as [|n IH]; [reflexivity|]. rewrite !nsum_S, IH. lia. Qed.

Lemma nsum_one n (a : nat) v : nsum n (fun i => if (a =? i)%nat then v else 0%N) = if (a <? n)%nat then v else 0%N.
Proof.
  induction n as [|n IH]; [reflexivity|]. rewrite nsum_S, IH.
  destruct (Nat.eqb_spec a n), (Nat.ltb_spec a n), (Nat.ltb_spec a (S n)); lia.
Qed.

(** bytes grouped by the other end of the chunk *)
Lemma by_other_end (P : chunk -> bool) (other : chunk -> nat) M l : Forall (fun c => other c < M)%nat l ->
  nsum M (fun f => total (map (tag (fun c => P c && (other c =? f)%nat)) l)) = total (map (tag P) l).
Proof.
  induction 1 as [|c l Hc Hl IH].
  - rewrite (nsum_ext M _ (fun _ => 0%N)) by reflexivity. induction M as [|m IHm]; [reflexivity|].
    rewrite nsum_S, IHm. reflexivity.
  - simpl map. rewrite (nsum_ext M _ (fun f => (tag (fun c => P c && (other c =? f)%nat) c
      + total (map (tag (fun c => P c && (other c =? f)%nat)) l))%N)) by reflexivity.
    rewrite nsum_add, IH, total_cons. f_equal. unfold tag.
    rewrite (nsum_ext M _ (fun f => if (other c =? f)%nat then (if P c then size c else 0%N) else 0%N)).
    + rewrite nsum_one. apply Nat.ltb_lt in Hc. now rewrite Hc.
    + intros i _. destruct (P c), (other c =? i)%nat; reflexivity.
Qed.

Lemma on_Forall {A} (P : A -> Prop) n xs rail : Forall P xs -> Forall P (on n xs rail).
Proof. rewrite !Forall_forall. intros H x Hx. apply H. eapply on_In; eauto. Qed.

Theorem T7_coupled_fluid : forall M R tx rx a b cs p q, check_fluid M R tx rx a b cs p q = true ->
  forall rail t, is_plan R cs rail -> on_time M R tx rx cs rail t -> (Z.of_N p # q) <= t.
Proof.
  unfold check_fluid. intros M R tx rx a b cs p q H rail t [L F] T. apply andb_prop in H. destruct H as [HM H].
  rewrite forallb_forall in HM.
  assert (Ms : Forall (fun c => src c < M)%nat cs /\ Forall (fun c => dst c < M)%nat cs).
  { split; apply Forall_forall; intros c Hc; specialize (HM c Hc); apply andb_prop in HM;
      destruct HM as [A B]; apply Nat.ltb_lt in A, B; assumption. }
  destruct Ms as [Ms Md].
  apply (T7_fluid _ _ _ _ _ _ _ _ _ H (fun k f n => nq (total (map (tag (pair k f)) (on n cs rail))))); split.
  - intros. apply nq_nonneg.
  - intros k f _ _. rewrite <- nsum_q. unfold nq2, demand_of, nsum.
    fold (total (map (fun n => total (map (tag (pair k f)) (on n cs rail))) (seq 0 R))).
    rewrite (count_rails (tag (pair k f)) cs rail R L F). reflexivity.
  - intros k n Hk Hn. rewrite <- nsum_q. destruct (T k n Hk Hn) as [A _].
    rewrite (nsum_ext M _ (fun f => total (map (tag (fun c => (src c =? k)%nat && (dst c =? f)%nat)) (on n cs rail))))
      by reflexivity.
    rewrite (by_other_end (fun c => (src c =? k)%nat) dst) by (now apply on_Forall). rewrite total_tag. exact A.
  - intros f n Hf Hn. rewrite <- nsum_q. destruct (T f n Hf Hn) as [_ A].
    rewrite (nsum_ext M _ (fun k => total (map (tag (fun c => (dst c =? f)%nat && (src c =? k)%nat)) (on n cs rail)))).
    + rewrite (by_other_end (fun c => (dst c =? f)%nat) src) by (now apply on_Forall). rewrite total_tag. exact A.
    + intros k _. f_equal. apply map_ext. intros c. unfold tag, pair. now rewrite andb_comm.
Qed.
