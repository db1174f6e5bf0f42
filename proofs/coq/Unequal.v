(** * T9: rails that are not equal

    Divisible traffic ([Fluid]); rates are rational.  Where every node has the same rates, the
    proportional split is optimal.  One slow or dead NIC costs N/(N-1+phi), not 1/phi.  Where
    nodes have different numbers of rails, splitting every pair evenly is no longer optimal
    even for one sender. *)
From Coq Require Import Arith NArith QArith Lia Lqa List Bool.
From Rails Require Import QSums Fluid.
Open Scope Q_scope.

Definition out_bytes (M : nat) (D : nat -> nat -> Q) (k : nat) : Q := qsum M (fun f => D k f).
Definition in_bytes (M : nat) (D : nat -> nat -> Q) (f : nat) : Q := qsum M (fun k => D k f).
Definition demand_ok (M : nat) (D : nat -> nat -> Q) : Prop :=
  forall k f, (k < M)%nat -> (f < M)%nat -> 0 <= D k f.

(** ** The lower bound: what a node sends or receives against all its NICs together *)
Theorem T9_lower : forall M R tx rx D x t, split M R D x -> in_time M R tx rx x t ->
  (forall k, (k < M)%nat -> out_bytes M D k <= t * qsum R (tx k)) /\
  (forall f, (f < M)%nat -> in_bytes M D f <= t * qsum R (rx f)).
Proof.
  intros M R tx rx D x t [_ XD] [TS TR]. split; intros v Hv; unfold out_bytes, in_bytes; rewrite <- qsum_mul.
  - rewrite (qsum_ext M _ (fun f => qsum R (x v f))) by (intros; symmetry; now apply XD).
    rewrite qsum_swap. apply qsum_le. intros n Hn. now apply TS.
  - rewrite (qsum_ext M _ (fun k => qsum R (x k v))) by (intros; symmetry; now apply XD).
    rewrite qsum_swap. apply qsum_le. intros n Hn. now apply TR.
Qed.

(** ** The same rates [b] at every node: split every pair in proportion *)
Definition proportional (R : nat) (b : nat -> Q) (D : nat -> nat -> Q) (k f n : nat) : Q :=
  D k f * (b n / qsum R b).

Lemma positive_ratio a c : 0 <= a -> 0 < c -> 0 <= a / c.
Proof. intros Ha Hc. apply Qle_shift_div_l; [exact Hc|]. lra. Qed.

Theorem T9_proportional : forall M R b D t, demand_ok M D ->
  (forall n, (n < R)%nat -> 0 <= b n) -> 0 < qsum R b ->
  (forall k, (k < M)%nat -> out_bytes M D k <= t * qsum R b) ->
  (forall f, (f < M)%nat -> in_bytes M D f <= t * qsum R b) ->
  split M R D (proportional R b D) /\
  in_time M R (fun _ => b) (fun _ => b) (proportional R b D) t.
Proof.
  intros M R b D t HD Hb HB Hrow Hcol. set (B := qsum R b) in *.
  assert (B0 : ~ B == 0) by (intros E; rewrite E in HB; now apply Qlt_irrefl in HB).
  assert (Load : forall s n, (n < R)%nat -> s <= t * B -> s * (b n / B) <= t * b n).
  { intros s n Hn Hs. setoid_replace (t * b n) with (t * B * (b n / B)) by (field; exact B0).
    apply Qmult_le_compat_r; [exact Hs|]. apply positive_ratio; auto. }
  split; split; unfold proportional; fold B.
  - intros k f n Hk Hf Hn. apply Qmult_le_0_compat; [now apply HD|]. apply positive_ratio; auto.
  - intros k f _ _. rewrite (qsum_ext R _ (fun n => (D k f / B) * b n)) by (intros; field; exact B0).
    rewrite qsum_mul. fold B. field. exact B0.
  - intros k n Hk Hn. rewrite (qsum_ext M _ (fun f => (b n / B) * D k f)) by (intros; ring).
    rewrite qsum_mul, Qmult_comm. apply Load; [exact Hn|]. now apply Hrow.
  - intros f n Hf Hn. rewrite (qsum_ext M _ (fun k => (b n / B) * D k f)) by (intros; ring).
    rewrite qsum_mul, Qmult_comm. apply Load; [exact Hn|]. now apply Hcol.
Qed.

(** so a time is enough for some split if and only if it is enough for the proportional one *)
Theorem T9_proportional_optimal : forall M R b D t, demand_ok M D ->
  (forall n, (n < R)%nat -> 0 <= b n) -> 0 < qsum R b ->
  ((exists x, split M R D x /\ in_time M R (fun _ => b) (fun _ => b) x t) <->
   in_time M R (fun _ => b) (fun _ => b) (proportional R b D) t).
Proof.
  intros M R b D t HD Hb HB. split.
  - intros (x & X & T). destruct (T9_lower _ _ _ _ _ _ _ X T) as [A B].
    destruct (T9_proportional M R b D t HD Hb HB A B) as [_ P]. exact P.
  - intros T. exists (proportional R b D). split; [|exact T]. clear T.
    (* the split itself does not depend on the time: use one that is enough *)
    set (total := qsum M (fun k => out_bytes M D k)).
    assert (B0 : ~ qsum R b == 0) by (intros E; rewrite E in HB; now apply Qlt_irrefl in HB).
    destruct (T9_proportional M R b D (total / qsum R b) HD Hb HB) as [S _]; [| |exact S].
    + intros k Hk. setoid_replace (total / qsum R b * qsum R b) with total by (field; exact B0).
      apply (qsum_single M (fun k => out_bytes M D k)); [exact Hk|]. intros j Hj. apply qsum_nonneg. intros f Hf. now apply HD.
    + intros f Hf. setoid_replace (total / qsum R b * qsum R b) with total by (field; exact B0).
      unfold total, in_bytes. apply qsum_le. intros k Hk. apply (qsum_single M (fun f => D k f)); [exact Hf|].
      intros j Hj. now apply HD.
Qed.

(** ** One slow NIC: NIC [n0] of node [k0] runs at [phi] (0 = dead), all others at 1 *)
Definition slow (k0 n0 : nat) (phi : Q) (k n : nat) : Q := if ((k =? k0) && (n =? n0))%nat then phi else 1.
Definition lean (n0 : nat) (phi : Q) (n : nat) : Q := if (n =? n0)%nat then phi else 1.
Definition avoiding (N k0 n0 : nat) (phi : Q) (D : nat -> nat -> Q) (k f n : nat) : Q :=
  let n' := inject_Z (Z.of_nat N) in
  if ((k =? k0) || (f =? k0))%nat then D k f * (lean n0 phi n / (n' - 1 + phi)) else D k f * (1 / n').

Lemma lean_total N n0 phi : (n0 < N)%nat -> qsum N (lean n0 phi) == inject_Z (Z.of_nat N) - 1 + phi.
Proof.
  intros H. transitivity (qsum N (fun _ => 1) + qsum N (fun n => if (n =? n0)%nat then phi - 1 else 0)).
  - rewrite <- qsum_add. apply qsum_ext. intros n _. unfold lean. destruct (n =? n0)%nat; ring.
  - rewrite qsum_const, (qsum_pick N (fun n => if (n =? n0)%nat then phi - 1 else 0) n0 H), Nat.eqb_refl.
    rewrite (qsum_zero N (fun i => if (i =? n0)%nat then 0 else if (i =? n0)%nat then phi - 1 else 0));
      [ring|]. intros i _. destruct (i =? n0)%nat; reflexivity.
Qed.

Lemma rails_pos N : (1 <= N)%nat -> 1 <= inject_Z (Z.of_nat N).
Proof. intros H. unfold Qle, inject_Z. simpl. lia. Qed.

Theorem T9_slow_nic : forall M N k0 n0 phi D L, (1 <= N)%nat -> (n0 < N)%nat -> demand_ok M D ->
  0 <= phi -> phi <= 1 -> let S := inject_Z (Z.of_nat N) - 1 + phi in 0 < S ->
  (forall k, (k < M)%nat -> out_bytes M D k <= L) -> (forall f, (f < M)%nat -> in_bytes M D f <= L) ->
  split M N D (avoiding N k0 n0 phi D) /\
  in_time M N (slow k0 n0 phi) (slow k0 n0 phi) (avoiding N k0 n0 phi D) (L / S).
Proof.
  intros M N k0 n0 phi D L HN Hn0 HD H0 H1 S HS Hrow Hcol.
  pose proof (rails_pos N HN) as Hn'. set (n' := inject_Z (Z.of_nat N)) in *.
  assert (S0 : ~ S == 0) by (intros E; rewrite E in HS; now apply Qlt_irrefl in HS).
  assert (N0 : ~ n' == 0) by (intros E; rewrite E in Hn'; lra).
  assert (Hlean : forall n, 0 <= lean n0 phi n /\ lean n0 phi n <= 1) by (intros n; unfold lean; destruct (n =? n0)%nat; lra).
  assert (Inv : 1 / n' <= 1 / S).
  { apply Qle_shift_div_l; [exact HS|]. setoid_replace (1 / n' * S) with (S / n') by (field; exact N0).
    apply Qle_shift_div_r; [lra|]. unfold S. lra. }
  (* no share exceeds 1/S, and the slow node's shares are in proportion *)
  assert (Share : forall k f n, (k < M)%nat -> (f < M)%nat -> avoiding N k0 n0 phi D k f n <= D k f * (1 / S)).
  { intros k f n Hk Hf. unfold avoiding. fold n'. fold S. pose proof (HD k f Hk Hf) as Hd.
    destruct ((k =? k0) || (f =? k0))%nat; rewrite !(Qmult_comm (D k f)); apply Qmult_le_compat_r; auto.
    apply Qle_shift_div_l; [exact HS|]. setoid_replace (lean n0 phi n / S * S) with (lean n0 phi n) by (field; exact S0).
    apply Hlean. }
  assert (Over : forall s, s <= L -> s * (1 / S) <= L / S).
  { intros s Hs. setoid_replace (L / S) with (L * (1 / S)) by (field; exact S0). apply Qmult_le_compat_r; [exact Hs|].
    apply positive_ratio; lra. }
  assert (Slow : forall s n, s <= L -> s * (lean n0 phi n / S) <= L / S * lean n0 phi n).
  { intros s n Hs. setoid_replace (L / S * lean n0 phi n) with (L * (lean n0 phi n / S)) by (field; exact S0).
    apply Qmult_le_compat_r; [exact Hs|]. apply positive_ratio; [apply Hlean|exact HS]. }
  split; split.
  - intros k f n Hk Hf _. unfold avoiding. fold n'. fold S. pose proof (HD k f Hk Hf).
    destruct ((k =? k0) || (f =? k0))%nat; apply Qmult_le_0_compat; auto; apply positive_ratio; try apply Hlean; lra.
  - intros k f _ _. unfold avoiding. fold n'. fold S. destruct ((k =? k0) || (f =? k0))%nat.
    + rewrite (qsum_ext N _ (fun n => (D k f / S) * lean n0 phi n)) by (intros; field; exact S0).
      rewrite qsum_mul, lean_total by assumption. fold n'. fold S. field. exact S0.
    + rewrite qsum_const. fold n'. field. exact N0.
  - intros k n Hk Hn. unfold slow. destruct (Nat.eqb_spec k k0) as [E|E]; simpl.
    + rewrite (qsum_ext M _ (fun f => (lean n0 phi n / S) * D k f)).
      2: { intros f _. unfold avoiding. fold n'. fold S. apply Nat.eqb_eq in E. rewrite E. simpl. ring. }
      rewrite qsum_mul, Qmult_comm. fold (lean n0 phi n). apply Slow. now apply Hrow.
    + rewrite Qmult_1_r. apply Qle_trans with (out_bytes M D k * (1 / S)); [|apply Over; now apply Hrow].
      unfold out_bytes. rewrite Qmult_comm, <- qsum_mul. apply qsum_le. intros f Hf. rewrite Qmult_comm. now apply Share.
  - intros f n Hf Hn. unfold slow. destruct (Nat.eqb_spec f k0) as [E|E]; simpl.
    + rewrite (qsum_ext M _ (fun k => (lean n0 phi n / S) * D k f)).
      2: { intros k _. unfold avoiding. fold n'. fold S. apply Nat.eqb_eq in E. rewrite E, orb_true_r. ring. }
      rewrite qsum_mul, Qmult_comm. fold (lean n0 phi n). apply Slow. now apply Hcol.
    + rewrite Qmult_1_r. apply Qle_trans with (in_bytes M D f * (1 / S)); [|apply Over; now apply Hcol].
      unfold in_bytes. rewrite Qmult_comm, <- qsum_mul. apply qsum_le. intros k Hk. rewrite Qmult_comm. now apply Share.
Qed.

(** nothing is faster if the slow node is a bottleneck *)
Theorem T9_slow_nic_optimal : forall M N k0 n0 phi D L x t, (k0 < M)%nat -> (n0 < N)%nat ->
  let S := inject_Z (Z.of_nat N) - 1 + phi in 0 < S ->
  out_bytes M D k0 == L \/ in_bytes M D k0 == L ->
  split M N D x -> in_time M N (slow k0 n0 phi) (slow k0 n0 phi) x t -> L / S <= t.
Proof.
  intros M N k0 n0 phi D L x t Hk Hn S HS HL X T. destruct (T9_lower _ _ _ _ _ _ _ X T) as [A B].
  assert (E : qsum N (slow k0 n0 phi k0) == S).
  { unfold S. rewrite <- (lean_total N n0 phi Hn). apply qsum_ext. intros n _. unfold slow, lean. now rewrite Nat.eqb_refl. }
  apply Qle_shift_div_r; [exact HS|]. rewrite <- E. destruct HL as [HL|HL]; rewrite <- HL; auto.
Qed.

(** splitting evenly instead waits for the slow NIC: 1/phi times the mean *)
Theorem T9_uniform_waits : forall M N k0 n0 phi D t, (k0 < M)%nat -> (n0 < N)%nat ->
  in_time M N (slow k0 n0 phi) (slow k0 n0 phi) (fun k f _ => D k f * (1 / inject_Z (Z.of_nat N))) t ->
  out_bytes M D k0 * (1 / inject_Z (Z.of_nat N)) <= t * phi.
Proof.
  intros M N k0 n0 phi D t Hk Hn [TS _]. specialize (TS k0 n0 Hk Hn). unfold slow in TS. rewrite !Nat.eqb_refl in TS. simpl in TS.
  unfold out_bytes. rewrite Qmult_comm, <- qsum_mul. rewrite (qsum_ext M _ (fun f => D k0 f * (1 / inject_Z (Z.of_nat N))))
    by (intros; ring). exact TS.
Qed.

(** the price against the healthy optimum L/N: N/(N-1+phi); 16/15 for half a NIC of eight *)
Theorem T9_price : forall N phi L, 0 < L -> (1 <= N)%nat -> let n' := inject_Z (Z.of_nat N) in 0 < n' - 1 + phi ->
  (L / (n' - 1 + phi)) / (L / n') == n' / (n' - 1 + phi).
Proof.
  intros N phi L HL HN n' HS. pose proof (rails_pos N HN) as Hn. fold n' in Hn.
  field. repeat split; intros E; rewrite E in *; lra.
Qed.

Theorem T9_half_of_eight : inject_Z 8 / (inject_Z 8 - 1 + (1 # 2)) == 16 # 15.
Proof. reflexivity. Qed.

(** a dead NIC: N/(N-1), attained and best possible where its node is a bottleneck *)
Theorem T9_dead_nic : forall M N k0 n0 D L, (2 <= N)%nat -> (k0 < M)%nat -> (n0 < N)%nat -> demand_ok M D ->
  (forall k, (k < M)%nat -> out_bytes M D k <= L) -> (forall f, (f < M)%nat -> in_bytes M D f <= L) ->
  out_bytes M D k0 == L \/ in_bytes M D k0 == L ->
  let best := L / (inject_Z (Z.of_nat N) - 1) in
  (exists x, split M N D x /\ in_time M N (slow k0 n0 0) (slow k0 n0 0) x best) /\
  (forall x t, split M N D x -> in_time M N (slow k0 n0 0) (slow k0 n0 0) x t -> best <= t).
Proof.
  intros M N k0 n0 D L HN Hk Hn HD Hr Hc HL best.
  assert (P : 2 <= inject_Z (Z.of_nat N)) by (unfold Qle, inject_Z; simpl; lia).
  assert (E : best == L / (inject_Z (Z.of_nat N) - 1 + 0)) by (unfold best; rewrite Qplus_0_r; reflexivity).
  assert (S0 : 0 < inject_Z (Z.of_nat N) - 1 + 0) by lra.
  split.
  - exists (avoiding N k0 n0 0 D).
    destruct (T9_slow_nic M N k0 n0 0 D L ltac:(lia) Hn HD ltac:(lra) ltac:(lra) S0 Hr Hc) as [X [A B]].
    split; [exact X|]. split; intros v n Hv Hn'; rewrite E; auto.
  - intros x t X T. rewrite E. exact (T9_slow_nic_optimal M N k0 n0 0 D L x t Hk Hn S0 HL X T).
Qed.

(** ** Different numbers of rails: node 1 has rail 0 only; node 0 sends one unit to 1 and one to 2

    Evenly over the rails that both ends have, node 0 puts 3/2 on rail 0 and 1/2 on rail 1, and takes
    3/2; sending to node 2 on rail 1 alone takes 1. *)
Definition D3 (k f : nat) : Q := match k, f with 0%nat, 1%nat | 0%nat, 2%nat => 1 | _, _ => 0 end.
Definition rates3 (k n : nat) : Q := match k, n with 1%nat, 1%nat => 0 | _, _ => 1 end.
Definition even3 (k f n : nat) : Q :=
  match k, f, n with 0%nat, 1%nat, 0%nat => 1 | 0%nat, 2%nat, _ => 1 # 2 | _, _, _ => 0 end.
Definition best3 (k f n : nat) : Q :=
  match k, f, n with 0%nat, 1%nat, 0%nat | 0%nat, 2%nat, 1%nat => 1 | _, _, _ => 0 end.

Ltac small3 :=
  intros; repeat match goal with H : (?v < _)%nat |- _ => destruct v as [|v]; [clear H|apply Nat.succ_lt_mono in H] end;
  try (exfalso; lia); try (compute; congruence).

Theorem T9_unequal_counts :
  split 3 2 D3 even3 /\ split 3 2 D3 best3 /\
  in_time 3 2 rates3 rates3 best3 1 /\
  qsum 3 (fun f => even3 0 f 0) == 3 # 2 /\ qsum 3 (fun f => even3 0 f 1) == 1 # 2 /\
  (forall t, in_time 3 2 rates3 rates3 even3 t -> (3 # 2) <= t).
Proof.
  split; [split; small3|]. split; [split; small3|]. split; [split; small3|].
  split; [reflexivity|]. split; [reflexivity|].
  intros t [TS _]. specialize (TS 0%nat 0%nat ltac:(lia) ltac:(lia)).
  change (qsum 3 (fun f => even3 0 f 0)) with (0 + 0 + 1 + (1 # 2)) in TS. change (rates3 0 0) with 1 in TS. lra.
Qed.
