(** * T10 in binary numbers: FAST's phases, and one hot GPU's channels, as counterexamples have them *)
From Coq Require Import Arith NArith QArith Qminmax Lia Lqa List Bool.
From Rails Require Import QSums Fluid Capacity Fast.
Import ListNotations.
Open Scope N_scope.

(** ** FAST's time, times m B1 B2: every number is whole then *)

Fixpoint phases (m B1 B2 before : N) (ws : list N) : N :=
  match ws with
  | [] => before
  | w :: ws => N.max (w * B1) before + phases m B1 B2 ((m - 1) * w * B2) ws
  end.
Definition all_phases (m B1 B2 inside : N) (ws : list N) : N :=
  (m - 1) * fold_right N.add 0 ws * B2 + phases m B1 B2 (inside * m * B2) ws.

(** servers of [m] GPUs whose bytes all start on one of them; [inside] bytes stay in a server *)
Definition fast_time (m B1 B2 inside : N) (ws : list N) : Q :=
  fast (nq m) (nq B1) (nq B2) (nq (fold_right N.add 0 ws)) (nq inside / nq B1)%Q (map nq ws).

Lemma nq_max a b d : (0 < d)%Q -> (Qmax (nq a / d) (nq b / d) == nq (N.max a b) / d)%Q.
Proof.
  intros Hd. destruct (N.le_gt_cases a b) as [H|H].
  - rewrite N.max_r by exact H. apply Q.max_r. apply Qmult_le_compat_r; [now apply nq_le|]. apply Qinv_le_0_compat. lra.
  - rewrite N.max_l by lia. apply Q.max_l. apply Qmult_le_compat_r; [apply nq_le; lia|]. apply Qinv_le_0_compat. lra.
Qed.

Lemma nq_pred m : 0 < m -> (nq (m - 1) == nq m - 1)%Q.
Proof.
  intros H. assert (E : (nq (m - 1 + 1) == nq m)%Q) by (now replace (m - 1 + 1) with m by lia).
  rewrite nq_add in E. change (nq 1) with 1%Q in E. lra.
Qed.

Theorem T10_phases : forall m B1 B2 inside ws, 0 < m -> 0 < B1 -> 0 < B2 ->
  (fast_time m B1 B2 inside ws == nq (all_phases m B1 B2 inside ws) / nq (m * B1 * B2))%Q.
Proof.
  intros m B1 B2 inside ws Hm H1 H2. apply nq_pos in Hm as Qm. apply nq_pos in H1 as Q1. apply nq_pos in H2 as Q2.
  assert (Qd : (0 < nq (m * B1 * B2))%Q) by (apply nq_pos; lia).
  assert (G : forall ws before x, (x == nq before / nq (m * B1 * B2))%Q ->
    (stages (wire (nq m) (nq B2)) (redistribute (nq m) (nq B1)) x (map nq ws) == nq (phases m B1 B2 before ws) / nq (m * B1 * B2))%Q).
  { clear ws. induction ws as [|w ws IH]; intros before x E; cbn [map stages phases]; [exact E|].
    rewrite (IH ((m - 1) * w * B2)).
    - assert (W : (wire (nq m) (nq B2) (nq w) == nq (w * B1) / nq (m * B1 * B2))%Q).
      { unfold wire. rewrite !nq_mul. field. repeat split; lra. }
      rewrite W, E, nq_max by exact Qd. rewrite nq_add. field. lra.
    - unfold redistribute. rewrite !nq_mul, (nq_pred m Hm). field. repeat split; lra. }
  unfold fast_time, fast, all_phases. rewrite (G ws (inside * m * B2)).
  - unfold balance. rewrite nq_add, !nq_mul, (nq_pred m Hm). field. repeat split; lra.
  - rewrite !nq_mul. field. repeat split; lra.
Qed.

(** ** The largest flow of one hot GPU *)

Definition channels (n up nic : N) : N := N.min (up + nic) (n * nic).

Theorem T10_hot_flow : forall n up nic, 1 <= n ->
  (exists p y r, flow (N.to_nat n) (nq up) (nq nic) p y r (nq (channels n up nic))) /\
  (forall p y r v, flow (N.to_nat n) (nq up) (nq nic) p y r v -> (v <= nq (channels n up nic))%Q).
Proof.
  intros n up nic Hn. assert (HN : (1 <= N.to_nat n)%nat) by lia.
  assert (E : (inject_Z (Z.of_nat (N.to_nat n)) * nq nic == nq (n * nic))%Q) by (rewrite nq_mul; unfold nq; now rewrite N_nat_Z).
  split.
  - apply T10_maxflow; try apply nq_nonneg; [exact HN|]. rewrite E, <- nq_add. unfold channels. split; apply nq_le; lia.
  - intros p y r v F. destruct (T10_cuts _ _ _ _ _ _ _ HN F) as [A B]. rewrite E in B. rewrite <- nq_add in A. unfold channels.
    destruct (N.min_spec (up + nic) (n * nic)) as [[_ ->]|[_ ->]]; assumption.
Qed.
