(** * T14: what a plan moves inside nodes

    A unit starts on a GPU of a node and goes, once, over one rail to another node, where some
    GPUs need it.  It is _staged_, moved to another GPU before the rail, where the rail's NIC is
    not its own GPU's, and _passed on_ after it to the GPUs that need it and have it not. *)
From Coq Require Import Arith NArith QArith Qminmax Qround Lia Lqa List Bool.
From Rails Require Import Sums QSums.
Open Scope Q_scope.

Lemma qsum_sub n f g : qsum n (fun i => f i - g i) == qsum n f - qsum n g.
Proof. induction n as [|n IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma qsum_only n a v : qsum n (fun i => if (i =? a)%nat then v else 0) == if (a <? n)%nat then v else 0.
Proof.
  induction n as [|n IH]; simpl qsum; [reflexivity|]. rewrite IH.
  destruct (Nat.ltb_spec a n), (Nat.ltb_spec a (S n)), (Nat.eqb_spec n a); try lia; ring.
Qed.

(** ** The excess is the least staging that makes one destination even

    [U g] bytes of GPU [g], whose own NIC is [g], go to one node; [x g n] of them take NIC [n]. *)
Section Excess.
  Variable N : nat.
  Variable U : nat -> Q.

  Definition mean : Q := qsum N U / inject_Z (Z.of_nat N).
  Definition excess : Q := qsum N (fun g => Qmax 0 (U g - mean)).

  (** all bytes take some NIC, and every NIC as many *)
  Definition even (x : nat -> nat -> Q) : Prop :=
    (forall g n, (g < N)%nat -> (n < N)%nat -> 0 <= x g n) /\
    (forall g, (g < N)%nat -> qsum N (x g) == U g) /\
    (forall n, (n < N)%nat -> qsum N (fun g => x g n) == mean).

  Definition staged (x : nat -> nat -> Q) : Q :=
    qsum N (fun g => qsum N (fun n => if (n =? g)%nat then 0 else x g n)).

  Lemma staged_own x : even x -> staged x == qsum N (fun g => U g - x g g).
  Proof.
    intros (_ & XU & _). apply qsum_ext. intros g Hg. rewrite <- (XU g Hg), (qsum_pick N (x g) g Hg). ring.
  Qed.

  Theorem T14_excess_least : forall x, even x -> excess <= staged x.
  Proof.
    intros x E. rewrite (staged_own x E). destruct E as (X0 & XU & XM). apply qsum_le. intros g Hg.
    apply Q.max_lub.
    - rewrite <- (XU g Hg). pose proof (qsum_single N (x g) g Hg). assert (x g g <= qsum N (x g)) by auto. lra.
    - rewrite <- (XM g Hg). pose proof (qsum_single N (fun h => x h g) g Hg).
      assert (x g g <= qsum N (fun h => x h g)) by auto. lra.
  Qed.

  (** what GPU [g] has above the mean, and what NIC [n] lacks *)
  Definition above (g : nat) : Q := Qmax 0 (U g - mean).
  Definition below (n : nat) : Q := Qmax 0 (mean - U n).

  (** own NICs up to the mean; of what is above it, every NIC gets in proportion to what it lacks *)
  Definition fill (g n : nat) : Q := (if (n =? g)%nat then Qmin (U g) mean else 0) + above g * (below n / excess).

  Lemma above_own g : above g + Qmin (U g) mean == U g.
  Proof.
    unfold above. destruct (Qlt_le_dec (U g) mean) as [H|H].
    - rewrite Q.max_l, Q.min_l by lra. ring.
    - rewrite Q.max_r, Q.min_r by lra. ring.
  Qed.

  Lemma below_own n : below n + Qmin (U n) mean == mean.
  Proof.
    unfold below. destruct (Qlt_le_dec (U n) mean) as [H|H].
    - rewrite Q.max_r, Q.min_l by lra. ring.
    - rewrite Q.max_l, Q.min_r by lra. ring.
  Qed.

  Lemma above_nonneg g : 0 <= above g.
  Proof. apply Q.le_max_l. Qed.
  Lemma below_nonneg n : 0 <= below n.
  Proof. apply Q.le_max_l. Qed.

  Lemma above_or_below g : above g * below g == 0.
  Proof.
    unfold above, below. destruct (Qlt_le_dec (U g) mean) as [H|H].
    - rewrite (Q.max_l 0 (U g - mean)) by lra. ring.
    - rewrite (Q.max_l 0 (mean - U g)) by lra. ring.
  Qed.

  Hypothesis some : (0 < N)%nat.
  Hypothesis bytes : forall g, (g < N)%nat -> 0 <= U g.

  Lemma N_nonzero : ~ inject_Z (Z.of_nat N) == 0.
  Proof. intros E. unfold Qeq, inject_Z in E. simpl in E. lia. Qed.

  Lemma mean_nonneg : 0 <= mean.
  Proof.
    unfold mean. apply Qle_shift_div_l.
    - unfold Qlt, inject_Z. simpl. lia.
    - rewrite Qmult_0_l. now apply qsum_nonneg.
  Qed.

  Lemma lacking : qsum N below == excess.
  Proof.
    assert (E : qsum N (fun n => below n + Qmin (U n) mean) == qsum N (fun g => above g + Qmin (U g) mean)).
    { rewrite (qsum_ext N _ (fun _ => mean)) by (intros; apply below_own).
      rewrite (qsum_ext N (fun g => above g + _) U) by (intros; apply above_own).
      rewrite qsum_const. unfold mean. field. apply N_nonzero. }
    rewrite !qsum_add in E. unfold excess. fold above. lra.
  Qed.

  (** the shares of what is above add up to all of it, if there is any *)
  Lemma shares g : (g < N)%nat -> above g * (excess / excess) == above g.
  Proof.
    intros Hg. destruct (Qeq_dec excess 0) as [Z|Z]; [|field; exact Z].
    assert (A : above g <= 0).
    { rewrite <- Z. unfold excess. apply (qsum_single N (fun g => Qmax 0 (U g - mean)) g Hg). intros. apply Q.le_max_l. }
    pose proof (above_nonneg g). assert (E : above g == 0) by lra. rewrite E. ring.
  Qed.

  Lemma shares_below n : (n < N)%nat -> excess * (below n / excess) == below n.
  Proof.
    intros Hn. destruct (Qeq_dec excess 0) as [Z|Z]; [|field; exact Z].
    assert (A : below n <= 0).
    { rewrite <- Z, <- lacking. apply qsum_single; [exact Hn|]. intros. apply below_nonneg. }
    pose proof (below_nonneg n). assert (E : below n == 0) by lra. rewrite E, Z. ring.
  Qed.

  Lemma share_nonneg n : 0 <= below n / excess.
  Proof.
    destruct (Qeq_dec excess 0) as [Z|Z].
    - rewrite Z. unfold Qdiv. simpl. rewrite Qmult_0_r. apply Qle_refl.
    - assert (0 <= excess) by (apply qsum_nonneg; intros; apply Q.le_max_l).
      apply Qle_shift_div_l; [|pose proof (below_nonneg n); lra].
      destruct (Qlt_le_dec 0 excess) as [P|P]; [exact P|]. exfalso. apply Z. lra.
  Qed.

  Theorem T14_excess_attained : even fill /\ staged fill == excess.
  Proof.
    assert (E : even fill).
    { split; [|split].
      - intros g n Hg Hn. unfold fill. pose proof (above_nonneg g). pose proof (share_nonneg n).
        assert (0 <= above g * (below n / excess)) by (now apply Qmult_le_0_compat).
        destruct (n =? g)%nat; [|lra]. assert (0 <= Qmin (U g) mean); [|lra].
        apply Q.min_glb; [now apply bytes|apply mean_nonneg].
      - intros g Hg. unfold fill. rewrite qsum_add, qsum_only.
        destruct (Nat.ltb_spec g N); [|lia]. rewrite qsum_mul.
        rewrite (qsum_ext N (fun n => below n / excess) (fun n => / excess * below n)) by (intros; unfold Qdiv; ring).
        rewrite qsum_mul, lacking. setoid_replace (/ excess * excess) with (excess / excess) by (unfold Qdiv; ring).
        rewrite (shares g Hg), Qplus_comm. apply above_own.
      - intros n Hn. unfold fill. rewrite qsum_add.
        rewrite (qsum_ext N (fun g => if (n =? g)%nat then Qmin (U g) mean else 0)
          (fun g => if (g =? n)%nat then Qmin (U n) mean else 0)).
        2: { intros g _. rewrite Nat.eqb_sym. destruct (Nat.eqb_spec g n) as [->|]; reflexivity. }
        rewrite qsum_only. destruct (Nat.ltb_spec n N); [|lia].
        rewrite (qsum_ext N (fun g => above g * _) (fun g => (below n / excess) * above g)) by (intros; ring).
        rewrite qsum_mul. change (qsum N above) with excess. rewrite (Qmult_comm (below n / excess)), (shares_below n Hn).
        rewrite Qplus_comm. apply below_own. }
    split; [exact E|]. rewrite (staged_own fill E). apply qsum_ext. intros g Hg. unfold fill. rewrite Nat.eqb_refl.
    rewrite <- (above_own g) at 1. unfold Qdiv. rewrite Qmult_assoc, above_or_below, Qmult_0_l.
    unfold above. ring.
  Qed.
End Excess.

(** ** Prices: what moves a byte, and what a NIC earns *)
Section Prices.
  Variables (M R units : nat).          (* nodes, rails, units *)
  Variables (tx rx : nat -> nat -> Q).  (* rates of NIC n of node k *)
  Variables (src dst : nat -> nat).     (* of each unit *)
  Variable size : nat -> Q.
  Variable cost : nat -> nat -> Q.      (* how often a byte of unit u is moved if it takes rail n *)

  (** [x u n] of the bytes of unit [u] take rail [n], none a dead NIC *)
  Definition carries (x : nat -> nat -> Q) : Prop :=
    (forall u n, (u < units)%nat -> (n < R)%nat -> 0 <= x u n) /\
    (forall u, (u < units)%nat -> qsum R (x u) == size u) /\
    (forall u n, (u < units)%nat -> (n < R)%nat -> tx (src u) n == 0 \/ rx (dst u) n == 0 -> x u n == 0).

  Definition load (ends : nat -> nat) (x : nat -> nat -> Q) (k n : nat) : Q :=
    qsum units (fun u => if (k =? ends u)%nat then x u n else 0).

  (** every NIC is done by time [t] *)
  Definition done_by (x : nat -> nat -> Q) (t : Q) : Prop :=
    forall k n, (k < M)%nat -> (n < R)%nat -> load src x k n <= t * tx k n /\ load dst x k n <= t * rx k n.

  Definition moved (x : nat -> nat -> Q) : Q := qsum units (fun u => qsum R (fun n => cost u n * x u n)).

  (** what all bytes pay at a side is what its NICs are paid *)
  Lemma paid (ends : nat -> nat) (a : nat -> nat -> Q) x : (forall u, (u < units)%nat -> (ends u < M)%nat) ->
    qsum units (fun u => qsum R (fun n => a (ends u) n * x u n)) ==
    qsum M (fun k => qsum R (fun n => a k n * load ends x k n)).
  Proof.
    intros H. unfold load.
    rewrite (qsum_ext M _ (fun k => qsum R (fun n => qsum units (fun u => if (k =? ends u)%nat then a (ends u) n * x u n else 0)))).
    2: { intros k _. apply qsum_ext. intros n _. rewrite <- qsum_mul. apply qsum_ext. intros u _.
         destruct (Nat.eqb_spec k (ends u)) as [->|]; ring. }
    rewrite (qsum_ext M _ (fun k => qsum units (fun u => qsum R (fun n => if (k =? ends u)%nat then a (ends u) n * x u n else 0))))
      by (intros; apply qsum_swap).
    rewrite (qsum_swap M units). apply qsum_ext. intros u Hu. rewrite (qsum_swap M R). apply qsum_ext. intros n _.
    rewrite qsum_only. specialize (H u Hu). apply Nat.ltb_lt in H. now rewrite H.
  Qed.

  Theorem T14_prices : forall (a b : nat -> nat -> Q) (price : nat -> Q),
    (forall k n, (k < M)%nat -> (n < R)%nat -> 0 <= a k n /\ 0 <= b k n) ->
    (forall u, (u < units)%nat -> (src u < M)%nat /\ (dst u < M)%nat) ->
    (forall u n, (u < units)%nat -> (n < R)%nat ->
      price u <= cost u n + a (src u) n + b (dst u) n \/ tx (src u) n == 0 \/ rx (dst u) n == 0) ->
    forall x t, carries x -> done_by x t ->
    qsum units (fun u => size u * price u)
      - t * (qsum M (fun k => qsum R (fun n => a k n * tx k n)) + qsum M (fun f => qsum R (fun n => b f n * rx f n)))
    <= moved x.
  Proof.
    intros a b price Hab Hends Hp x t (X0 & XS & XD) T.
    assert (Pay : qsum units (fun u => size u * price u) <=
      moved x + qsum M (fun k => qsum R (fun n => a k n * load src x k n))
              + qsum M (fun f => qsum R (fun n => b f n * load dst x f n))).
    { rewrite <- !paid by (intros u Hu; now apply Hends). unfold moved. rewrite <- !qsum_add. apply qsum_le. intros u Hu.
      rewrite <- !qsum_add, <- (XS u Hu), Qmult_comm, <- qsum_mul. apply qsum_le. intros n Hn.
      pose proof (X0 u n Hu Hn) as P.
      destruct (Hp u n Hu Hn) as [H|H].
      - setoid_replace (cost u n * x u n + a (src u) n * x u n + b (dst u) n * x u n)
          with ((cost u n + a (src u) n + b (dst u) n) * x u n) by ring. now apply Qmult_le_compat_r.
      - rewrite (XD u n Hu Hn H). lra. }
    assert (Earn : forall (c rate l : nat -> nat -> Q),
      (forall k n, (k < M)%nat -> (n < R)%nat -> 0 <= c k n) ->
      (forall k n, (k < M)%nat -> (n < R)%nat -> l k n <= t * rate k n) ->
      qsum M (fun k => qsum R (fun n => c k n * l k n)) <= t * qsum M (fun k => qsum R (fun n => c k n * rate k n))).
    { intros c rate l Hc Hl. rewrite <- qsum_mul. apply qsum_le. intros k Hk. rewrite <- qsum_mul. apply qsum_le.
      intros n Hn. setoid_replace (t * (c k n * rate k n)) with (t * rate k n * c k n) by ring.
      rewrite (Qmult_comm (c k n)). apply Qmult_le_compat_r; [now apply Hl|now apply Hc]. }
    pose proof (Earn a tx (load src x) (fun k n Hk Hn => proj1 (Hab k n Hk Hn)) (fun k n Hk Hn => proj1 (T k n Hk Hn))).
    pose proof (Earn b rx (load dst x) (fun k n Hk Hn => proj2 (Hab k n Hk Hn)) (fun k n Hk Hn => proj2 (T k n Hk Hn))).
    rewrite Qmult_plus_distr_r. lra.
  Qed.

  (** whole bytes: the bound may be rounded up *)
  Theorem T14_prices_whole : forall (bound : Q) x (bytes : Z), moved x == inject_Z bytes -> bound <= moved x ->
    (Qceiling bound <= bytes)%Z.
  Proof. intros bound x bytes E H. rewrite E in H. apply Qceiling_resp_le in H. now rewrite Qceiling_Z in H. Qed.
End Prices.

(** ** Own NIC: GPU and NIC [n] of a node belong together *)
Open Scope nat_scope.

(** how often a byte of GPU [g] for the GPUs [H] of a node is moved, if it takes rail [n] *)
Definition moves (N g : nat) (H : nat -> bool) (n : nat) : nat :=
  (if n =? g then 0 else 1) + count N (fun h => H h && negb (h =? n)).

Lemma count_less N (H : nat -> bool) n : count N H <= 1 + count N (fun h => H h && negb (h =? n)).
Proof.
  assert (E : count N H <= count N (fun h => H h && negb (h =? n)) + sum N (fun h => if h =? n then 1 else 0)).
  { unfold count. rewrite <- sum_add. apply sum_le. intros h _. destruct (H h), (h =? n); simpl; lia. }
  rewrite sum_ind in E. destruct (n <? N); lia.
Qed.

Lemma moves_own N g H n : moves N g H g <= moves N g H n.
Proof.
  unfold moves. rewrite Nat.eqb_refl. destruct (Nat.eqb_spec n g) as [->|_]; [lia|].
  pose proof (count_less N H n).
  assert (count N (fun h => H h && negb (h =? g)) <= count N H); [|lia].
  unfold count. apply sum_le. intros h _. destruct (H h), (h =? g); simpl; lia.
Qed.

(** units with a GPU, targets and a size; [rail u] of each *)
Definition moved_by (N units : nat) (gpu : nat -> nat) (needs : nat -> nat -> bool) (size rail : nat -> nat) : nat :=
  sum units (fun u => size u * moves N (gpu u) (needs u) (rail u)).

(** bytes that NIC [n] of node [k] carries for the units of that node *)
Definition carried (units : nat) (node size rail : nat -> nat) (k n : nat) : nat :=
  sum units (fun u => if (node u =? k) && (rail u =? n) then size u else 0).

Definition keeps (M N units : nat) (tx rx : nat -> nat -> Q) (src dst size : nat -> nat) (t : Q) (rail : nat -> nat) : Prop :=
  forall k n, k < M -> n < N ->
  (inject_Z (Z.of_nat (carried units src size rail k n)) <= t * tx k n /\
   inject_Z (Z.of_nat (carried units dst size rail k n)) <= t * rx k n)%Q.

(** no plan moves less than own NICs *)
Theorem T14_own_least : forall N units gpu needs size rail,
  moved_by N units gpu needs size gpu <= moved_by N units gpu needs size rail.
Proof.
  intros. apply sum_le. intros u _. apply Nat.mul_le_mono_l. apply moves_own.
Qed.

(** done by time [t], and no other such plan moves less *)
Definition best (M N units : nat) (tx rx : nat -> nat -> Q) (src dst gpu : nat -> nat) (needs : nat -> nat -> bool)
    (size : nat -> nat) (t : Q) (rail : nat -> nat) : Prop :=
  keeps M N units tx rx src dst size t rail /\
  forall other, keeps M N units tx rx src dst size t other ->
    moved_by N units gpu needs size rail <= moved_by N units gpu needs size other.

Theorem T14_own_nic : forall M N units tx rx src dst gpu needs size t,
  best M N units tx rx src dst gpu needs size t gpu <-> keeps M N units tx rx src dst size t gpu.
Proof.
  intros. split; [now intros [H _]|]. intros H. split; [exact H|]. intros other _. apply T14_own_least.
Qed.

(** ** A dead NIC: bytes of GPUs that are near dead NICs alone are staged *)
Theorem T14_dead_nic : forall R units (gpu : nat -> nat) (near live : nat -> nat -> bool) (size rail : nat -> nat),
  (forall u, u < units -> rail u < R /\ live u (rail u) = true) ->
  sum units (fun u => if forallb (fun n => negb (near (gpu u) n && live u n)) (seq 0 R) then size u else 0)
  <= sum units (fun u => if near (gpu u) (rail u) then 0 else size u).
Proof.
  intros R units gpu near live size rail H. apply sum_le. intros u Hu. destruct (H u Hu) as [A B].
  destruct (forallb _ _) eqn:E; [|lia]. rewrite forallb_forall in E.
  specialize (E (rail u)). rewrite B, andb_true_r in E. destruct (near (gpu u) (rail u)); [|lia].
  assert (In (rail u) (seq 0 R)) by (apply in_seq; lia). specialize (E H0). discriminate.
Qed.
