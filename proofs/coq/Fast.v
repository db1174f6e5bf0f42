(** * T10, second half: FAST's worst-case bound

    FAST (arXiv 2505.09764) balances inside each server, sends in one-to-one stages, and
    redistributes inside the target server while the next stage is on the wire.  With [n]
    servers of [m] GPUs, scale-up [B1] and scale-out [B2] a GPU, and [L] the largest row or
    column sum, the optimum is L/(m B2) and the bound stated is 1 + (B2/B1)(m + m/n) times that.

    Here: the stated bound is false (its last term charges one GPU's share of a stage, but all
    m-1 other shares may have to enter one GPU); with 2(m-1) in place of m it is true, for
    stages in any order and without a condition on B1 and B2; that is the best possible; and
    running stages from the largest is never slower than from the smallest. *)
From Coq Require Import Arith NArith QArith Qminmax Lia Lqa List Bool Sorted.
From Rails Require Import QSums Unequal.
Import ListNotations.
Open Scope Q_scope.

(** ** The pipeline

    Stage [w] moves [w] bytes between each pair of servers in its matching: w/m on each NIC.
    Afterwards its bytes may all belong to one GPU of the target, which then takes the other
    m-1 shares in through its scale-up port. *)
Definition wire (m B2 w : Q) : Q := w / (m * B2).
Definition redistribute (m B1 w : Q) : Q := (m - 1) * w / (m * B1).
Definition balance (m B1 H : Q) : Q := (m - 1) * H / (m * B1).   (* all H bytes of a server start on one GPU *)

(** each stage overlaps the redistribution of the one before it, the first one the traffic inside the
    servers ([intra] seconds); the last redistribution is exposed *)
Fixpoint stages (stage redo : Q -> Q) (before : Q) (ws : list Q) : Q :=
  match ws with
  | [] => before
  | w :: ws => Qmax (stage w) before + stages stage redo (redo w) ws
  end.
Definition fast (m B1 B2 H intra : Q) (ws : list Q) : Q :=
  balance m B1 H + stages (wire m B2) (redistribute m B1) intra ws.

Definition qtotal (ws : list Q) : Q := fold_right Qplus 0 ws.
Definition ratio_stated (m n B1 B2 : Q) : Q := 1 + (B2 / B1) * (m + m / n).
Definition ratio_proved (m n B1 B2 : Q) : Q := 1 + (B2 / B1) * (2 * (m - 1) + m / n).
Definition optimum (m B2 L : Q) : Q := L / (m * B2).

(** ** Bounds for one pipeline, with stage = c2 w and redo = c1 w *)

Lemma qmax_cases a b : (Qmax a b == a /\ b <= a) \/ (Qmax a b == b /\ a <= b).
Proof.
  destruct (Qlt_le_dec a b) as [H|H].
  - right. split; [apply Q.max_r|]; lra.
  - left. split; [now apply Q.max_l|exact H].
Qed.

Lemma last_cons (ws : list Q) : forall w d, last (w :: ws) d = last ws w.
Proof.
  induction ws as [|v ws IH]; intros w d; [reflexivity|].
  change (last (w :: v :: ws) d) with (last (v :: ws) d). now rewrite !IH.
Qed.

Section Pipeline.
  Variables c1 c2 : Q.
  Hypothesis Hc1 : 0 <= c1.
  Hypothesis Hc2 : 0 <= c2.
  Notation run := (stages (fun w => c2 * w) (fun w => c1 * w)).

  (** any order: nothing overlaps at worst *)
  Lemma any_order ws : Forall (fun w => 0 <= w) ws -> forall before, 0 <= before ->
    run before ws <= before + (c1 + c2) * qtotal ws.
  Proof.
    induction 1 as [|w ws Hw F IH]; intros before Hb; cbn [stages qtotal fold_right] in *; [lra|].
    assert (R0 : 0 <= c1 * w) by (now apply Qmult_le_0_compat).
    assert (S0 : 0 <= c2 * w) by (now apply Qmult_le_0_compat).
    specialize (IH (c1 * w) R0). fold (qtotal ws).
    destruct (qmax_cases (c2 * w) before) as [[-> _]|[-> _]]; lra.
  Qed.

  Hypothesis Hc : c1 <= c2.

  (** ascending: every redistribution but the last is covered *)
  Lemma ascending ws : forall w0, 0 <= w0 -> StronglySorted Qle (w0 :: ws) ->
    run (c1 * w0) ws == c2 * qtotal ws + c1 * last ws w0.
  Proof.
    induction ws as [|w ws IH]; intros w0 H0 S; [cbn; lra|].
    inversion_clear S as [|? ? S' F]. inversion_clear F as [|? ? H1 F'].
    assert (W0 : 0 <= w) by lra. cbn [stages]. specialize (IH w W0 S').
    assert (A : c1 * w0 <= c2 * w).
    { apply Qle_trans with (c1 * w).
      - rewrite !(Qmult_comm c1). now apply Qmult_le_compat_r.
      - now apply Qmult_le_compat_r. }
    rewrite Q.max_l by exact A. rewrite IH.
    pose proof (last_cons ws w w0) as E.
    rewrite E. cbn [qtotal fold_right]. fold (qtotal ws). ring.
  Qed.

  (** descending: what is exposed telescopes to the first redistribution *)
  Lemma descending ws : forall w0, StronglySorted (fun a b => b <= a) (w0 :: ws) -> Forall (fun w => 0 <= w) ws ->
    run (c1 * w0) ws <= c2 * qtotal ws + c1 * w0.
  Proof.
    induction ws as [|w ws IH]; intros w0 S P; [cbn [stages qtotal fold_right]; lra|].
    inversion_clear S as [|? ? S' F]. inversion_clear F as [|? ? H1 F']. inversion_clear P as [|? ? Hw P'].
    cbn [stages qtotal fold_right]. fold (qtotal ws). specialize (IH w S' P').
    assert (A : c1 * w <= c1 * w0) by (rewrite !(Qmult_comm c1); now apply Qmult_le_compat_r).
    assert (B : c1 * w <= c2 * w) by (now apply Qmult_le_compat_r).
    destruct (qmax_cases (c2 * w) (c1 * w0)) as [[-> _]|[-> _]]; lra.
  Qed.
End Pipeline.

Lemma stages_ext f f' g g' ws : (forall w, f w == f' w) -> (forall w, g w == g' w) ->
  forall a b, a == b -> stages f g a ws == stages f' g' b ws.
Proof.
  intros Hf Hg. induction ws as [|w ws IH]; intros a b E; cbn [stages]; [exact E|].
  rewrite (IH (g w) (g' w) (Hg w)), Hf, E. reflexivity.
Qed.

(** ** The corrected bound: any order of stages, any rates *)

Lemma mul_pos a b : 0 < a -> 0 < b -> 0 < a * b.
Proof. intros Ha Hb. setoid_replace 0 with (0 * b) by ring. now apply Qmult_lt_compat_r. Qed.

Lemma fast_linear m B1 B2 H intra ws : 0 < m -> 0 < B1 -> 0 < B2 ->
  fast m B1 B2 H intra ws == (m - 1) / (m * B1) * H +
    stages (fun w => 1 / (m * B2) * w) (fun w => (m - 1) / (m * B1) * w) intra ws.
Proof.
  intros Hm H1 H2. unfold fast, balance. pose proof (mul_pos _ _ Hm H1). pose proof (mul_pos _ _ Hm H2).
  rewrite (stages_ext (wire m B2) (fun w => 1 / (m * B2) * w) (redistribute m B1) (fun w => (m - 1) / (m * B1) * w) ws
    ltac:(intros w; unfold wire; field; split; lra) ltac:(intros w; unfold redistribute; field; split; lra) intra intra (Qeq_refl _)).
  apply Qplus_comp; [field; split; lra|reflexivity].
Qed.

Theorem T10_fast_bound : forall m n B1 B2 L H intra ws, 1 <= m -> 0 < n -> 0 < B1 -> 0 < B2 ->
  Forall (fun w => 0 <= w) ws -> qtotal ws == L -> 0 <= H -> H <= L -> 0 <= intra -> intra <= L / (n * B1) ->
  fast m B1 B2 H intra ws <= optimum m B2 L * ratio_proved m n B1 B2.
Proof.
  intros m n B1 B2 L H intra ws Hm Hn H1 H2 F Et H0 HL Hi0 Hi. assert (Hm0 : 0 < m) by lra.
  rewrite fast_linear by assumption. pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2.
  set (c1 := (m - 1) / (m * B1)). set (c2 := 1 / (m * B2)).
  assert (C1 : 0 <= c1) by (apply positive_ratio; lra). assert (C2 : 0 <= c2) by (apply positive_ratio; lra).
  pose proof (any_order c1 c2 C1 C2 ws F intra Hi0) as A. rewrite Et in A.
  assert (B : c1 * H <= c1 * L) by (rewrite !(Qmult_comm c1); now apply Qmult_le_compat_r).
  assert (E : optimum m B2 L * ratio_proved m n B1 B2 == 2 * (c1 * L) + c2 * L + L / (n * B1)).
  { unfold optimum, ratio_proved, c1, c2. field. repeat split; lra. }
  rewrite E. lra.
Qed.

(** ** Sorted stages: only the largest redistribution is exposed (needs B1 >= (m-1) B2) *)
Definition sorted_time (m B1 B2 H intra L W : Q) : Q :=
  (m - 1) / (m * B1) * H + intra + L / (m * B2) + (m - 1) / (m * B1) * W.

Lemma rates_covered m B1 B2 : 1 <= m -> 0 < B1 -> 0 < B2 -> (m - 1) * B2 <= B1 -> (m - 1) / (m * B1) <= 1 / (m * B2).
Proof.
  intros Hm H1 H2 Hc. assert (Hm0 : 0 < m) by lra.
  pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2.
  apply Qle_shift_div_l; [exact P2|].
  setoid_replace ((m - 1) / (m * B1) * (m * B2)) with ((m - 1) * B2 / B1) by (field; split; lra).
  apply Qle_shift_div_r; lra.
Qed.

Theorem T10_fast_ascending : forall m B1 B2 H intra ws, 1 <= m -> 0 < B1 -> 0 < B2 -> (m - 1) * B2 <= B1 ->
  Forall (fun w => 0 <= w) ws -> StronglySorted Qle ws -> 0 <= intra ->
  fast m B1 B2 H intra ws <= sorted_time m B1 B2 H intra (qtotal ws) (last ws 0).
Proof.
  intros m B1 B2 H intra ws Hm H1 H2 Hc F S Hi. assert (Hm0 : 0 < m) by lra.
  rewrite fast_linear by assumption. pose proof (rates_covered m B1 B2 Hm H1 H2 Hc) as C.
  pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2. unfold sorted_time.
  assert (E : qtotal ws / (m * B2) == 1 / (m * B2) * qtotal ws) by (field; split; lra). rewrite E. clear E.
  set (c1 := (m - 1) / (m * B1)) in *. set (c2 := 1 / (m * B2)) in *.
  assert (C1 : 0 <= c1) by (apply positive_ratio; lra). assert (C2 : 0 <= c2) by (apply positive_ratio; lra).
  destruct ws as [|w ws].
  - cbn. lra.
  - inversion_clear F as [|? ? Hw F']. cbn [stages].
    rewrite (ascending c1 c2 C1 C ws w Hw S), last_cons. cbn [qtotal fold_right]. fold (qtotal ws).
    assert (W0 : 0 <= c2 * w) by (now apply Qmult_le_0_compat).
    destruct (qmax_cases (c2 * w) intra) as [[-> _]|[-> _]]; lra.
Qed.

Theorem T10_fast_descending : forall m B1 B2 H intra w ws, 1 <= m -> 0 < B1 -> 0 < B2 -> (m - 1) * B2 <= B1 ->
  Forall (fun w => 0 <= w) (w :: ws) -> StronglySorted (fun a b => b <= a) (w :: ws) -> 0 <= intra ->
  fast m B1 B2 H intra (w :: ws) <= sorted_time m B1 B2 H intra (qtotal (w :: ws)) w.
Proof.
  intros m B1 B2 H intra w ws Hm H1 H2 Hc F S Hi. assert (Hm0 : 0 < m) by lra.
  rewrite fast_linear by assumption. pose proof (rates_covered m B1 B2 Hm H1 H2 Hc) as C.
  pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2. unfold sorted_time.
  assert (E : qtotal (w :: ws) / (m * B2) == 1 / (m * B2) * qtotal (w :: ws)) by (field; split; lra). rewrite E. clear E.
  set (c1 := (m - 1) / (m * B1)) in *. set (c2 := 1 / (m * B2)) in *.
  assert (C1 : 0 <= c1) by (apply positive_ratio; lra). assert (C2 : 0 <= c2) by (apply positive_ratio; lra).
  inversion_clear F as [|? ? Hw F']. cbn [stages]. pose proof (descending c1 c2 C1 C ws w S F') as D.
  cbn [qtotal fold_right]. fold (qtotal ws). assert (W0 : 0 <= c2 * w) by (now apply Qmult_le_0_compat).
  destruct (qmax_cases (c2 * w) intra) as [[-> _]|[-> _]]; lra.
Qed.

(** ** Largest first is never slower than smallest first

    [w :: mid ++ [W]] ascends; the same stages from the largest are [W :: rev mid ++ [w]]. *)
Lemma qtotal_app a b : qtotal (a ++ b) == qtotal a + qtotal b.
Proof.
  induction a as [|x a IH]; [change (qtotal []) with 0; simpl app; ring|].
  change (x + qtotal (a ++ b) == x + qtotal a + qtotal b). rewrite IH. ring.
Qed.

Lemma qtotal_rev a : qtotal (rev a) == qtotal a.
Proof.
  induction a as [|x a IH]; [reflexivity|]. cbn [rev]. rewrite qtotal_app, IH. cbn [qtotal fold_right]. fold (qtotal a). ring.
Qed.

Lemma sorted_rev (ws : list Q) : StronglySorted Qle ws -> StronglySorted (fun a b => b <= a) (rev ws).
Proof.
  induction 1 as [|w ws S IH F]; cbn [rev]; [constructor|].
  assert (App : forall l, StronglySorted (fun a b => b <= a) l -> Forall (fun v => w <= v) l ->
    StronglySorted (fun a b => b <= a) (l ++ [w])).
  { induction l as [|v l IHl]; intros Sl Fl; cbn [app]; [repeat constructor|].
    inversion_clear Sl as [|? ? Sl' Fv]. inversion_clear Fl as [|? ? Hv Fl']. constructor; [now apply IHl|].
    apply Forall_app. split; [exact Fv|]. now constructor. }
  apply App; [exact IH|]. apply Forall_rev. exact F.
Qed.

Theorem T10_largest_first : forall m B1 B2 H intra w mid W, 1 <= m -> 0 < B1 -> 0 < B2 -> (m - 1) * B2 <= B1 ->
  0 <= w -> StronglySorted Qle (w :: mid ++ [W]) -> 0 <= intra ->
  fast m B1 B2 H intra (rev (w :: mid ++ [W])) <= fast m B1 B2 H intra (w :: mid ++ [W]).
Proof.
  intros m B1 B2 H intra w mid W Hm H1 H2 Hc Hw S Hi. assert (Hm0 : 0 < m) by lra.
  rewrite !fast_linear by assumption. pose proof (rates_covered m B1 B2 Hm H1 H2 Hc) as C.
  pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2.
  set (c1 := (m - 1) / (m * B1)) in *. set (c2 := 1 / (m * B2)) in *.
  assert (C1 : 0 <= c1) by (apply positive_ratio; lra). assert (C2 : 0 <= c2) by (apply positive_ratio; lra).
  pose proof (sorted_rev _ S) as S'.
  assert (F : Forall (fun v => w <= v) (mid ++ [W])) by (now inversion S).
  assert (HW : w <= W) by (apply Forall_app in F; destruct F as [_ F]; now inversion F).
  assert (Er : rev (w :: mid ++ [W]) = W :: rev mid ++ [w]) by (cbn [rev]; rewrite rev_app_distr; reflexivity).
  rewrite Er in *. cbn [stages]. rewrite (ascending c1 c2 C1 C _ w Hw S).
  assert (F' : Forall (fun v => 0 <= v) (rev mid ++ [w])).
  { apply Forall_app in F. destruct F as [F _]. apply Forall_app. split; [|now constructor].
    apply Forall_rev. eapply Forall_impl; [|exact F]. intros v Hv. cbv beta in *. lra. }
  pose proof (descending c1 c2 C1 C _ W S' F') as D.
  rewrite !qtotal_app, qtotal_rev in *. cbn [qtotal fold_right] in *.
  assert (El : last (mid ++ [W]) w = W) by (apply last_last). rewrite El.
  assert (A : c2 * w <= c2 * W) by (rewrite !(Qmult_comm c2); now apply Qmult_le_compat_r).
  destruct (qmax_cases (c2 * W) intra) as [[-> G]|[-> G]], (qmax_cases (c2 * w) intra) as [[-> G']|[-> G']]; lra.
Qed.

(** but some order is needed for that: stages 2, 1, 2 cost more than any sorted order of them may *)
Theorem T10_order_matters :
  StronglySorted Qle [1; 2; 2] /\
  fast 8 350 50 0 0 [1; 2; 2] == 7 # 400 /\ fast 8 350 50 0 0 [2; 2; 1] == 7 # 400 /\ fast 8 350 50 0 0 [2; 1; 2] == 8 # 400.
Proof. repeat split; repeat constructor; discriminate. Qed.

(** ** The stated bound is false

    Every server's L bytes start on one GPU and belong to one GPU of the next server: one
    stage, full balancing, full redistribution. *)
Theorem T10_fast_hot : forall m B1 B2 L, 1 <= m -> 0 < B1 -> 0 < B2 -> 0 < L ->
  fast m B1 B2 L 0 [L] == optimum m B2 L * (1 + (B2 / B1) * (2 * (m - 1))).
Proof.
  intros m B1 B2 L Hm H1 H2 HL. assert (Hm0 : 0 < m) by lra. pose proof (mul_pos _ _ Hm0 H2) as P2.
  unfold fast. cbn [stages]. rewrite Q.max_l.
  - unfold balance, wire, redistribute, optimum. field. repeat split; lra.
  - unfold wire. apply positive_ratio; lra.
Qed.

Theorem T10_fast_refuted : forall m n B1 B2 L, 1 <= m -> 0 < n -> 0 < B1 -> 0 < B2 -> 0 < L ->
  m / n < m - 2 -> optimum m B2 L * ratio_stated m n B1 B2 < fast m B1 B2 L 0 [L].
Proof.
  intros m n B1 B2 L Hm Hn H1 H2 HL Hx. assert (Hm0 : 0 < m) by lra. pose proof (mul_pos _ _ Hm0 H2) as P2.
  rewrite T10_fast_hot by assumption. unfold ratio_stated, optimum.
  assert (O : 0 < L / (m * B2)) by (apply Qlt_shift_div_l; [exact P2|lra]).
  apply Qmult_lt_l; [exact O|]. assert (R : 0 < B2 / B1) by (apply Qlt_shift_div_l; [exact H1|lra]).
  apply Qplus_lt_r. apply Qmult_lt_l; [exact R|]. lra.
Qed.

(** the paper's own setting, 4 servers of 8 GPUs at 450 and 50 GB/s: 23/9, stated 19/9, proved 25/9 *)
Theorem T10_fast_refuted_4x8 : forall L, 0 < L ->
  fast 8 450 50 L 0 [L] / optimum 8 50 L == 23 # 9 /\ ratio_stated 8 4 450 50 == 19 # 9 /\ ratio_proved 8 4 450 50 == 25 # 9.
Proof.
  intros L HL. split; [|split; reflexivity]. rewrite T10_fast_hot by lra. unfold optimum. field. lra.
Qed.

(** ** The corrected bound can't be improved: with a first stage of [e] bytes, which leaves the
       traffic inside the servers exposed, the time is that bound less a multiple of [e] *)
Theorem T10_fast_tight : forall m n B1 B2 L e, 1 <= m -> 0 < n -> 0 < B1 -> 0 < B2 -> (m - 1) * B2 <= B1 ->
  0 <= e -> 2 * e <= L -> wire m B2 e <= L / (n * B1) ->
  fast m B1 B2 L (L / (n * B1)) [e; L - e] ==
  optimum m B2 L * ratio_proved m n B1 B2 - e * (1 / (m * B2) + (m - 1) / (m * B1)).
Proof.
  intros m n B1 B2 L e Hm Hn H1 H2 Hc He HL Hw. assert (Hm0 : 0 < m) by lra.
  pose proof (rates_covered m B1 B2 Hm H1 H2 Hc) as C.
  pose proof (mul_pos _ _ Hm0 H1) as P1. pose proof (mul_pos _ _ Hm0 H2) as P2. pose proof (mul_pos _ _ Hn H1) as P3.
  unfold fast. cbn [stages]. rewrite Q.max_r by exact Hw. rewrite Q.max_l.
  - unfold balance, wire, redistribute, optimum, ratio_proved. field. repeat split; lra.
  - unfold redistribute, wire. setoid_replace ((m - 1) * e / (m * B1)) with ((m - 1) / (m * B1) * e) by (field; split; lra).
    setoid_replace ((L - e) / (m * B2)) with (1 / (m * B2) * (L - e)) by (field; split; lra).
    assert (C1 : 0 <= (m - 1) / (m * B1)) by (apply positive_ratio; lra).
    apply Qle_trans with ((m - 1) / (m * B1) * (L - e)).
    + rewrite !(Qmult_comm ((m - 1) / (m * B1))). apply Qmult_le_compat_r; lra.
    + apply Qmult_le_compat_r; lra.
Qed.
