(** * Certificates: one witness type, one check, and what it means for one sender or a whole fabric *)
From Coq Require Import Arith NArith QArith Lia List Bool Permutation Mergesort Orders.
From Rails Require Import Jobs Counting Weights Cover.
Import ListNotations.
Open Scope nat_scope.

(** ** The check *)

Inductive witness :=
| Average                               (* all bytes against all rooms *)
| Pigeonhole (jobs rails : N)           (* some k rails carry many of the l largest *)
| Count (jobs : N)                      (* how many of the j largest each rail takes *)
| Dual (weights : list (N * N))         (* a weight for each size, in units, descending *)
| Cover.                                (* every way to fill the rails fails *)

(** the weight of each job; both lists descend, a size that is not listed weighs nothing *)
Fixpoint drop_above (p : N) (table : list (N * N)) : list (N * N) :=
  match table with e :: rest => if (p <? fst e)%N then drop_above p rest else table | [] => [] end.
Fixpoint attach (ps : list N) (table : list (N * N)) : list item :=
  match ps with
  | [] => []
  | p :: ps =>
      let table := drop_above p table in
      (p, match table with e :: _ => if (fst e =? p)%N then snd e else 0%N | [] => 0%N end) :: attach ps table
  end.

Definition refutes (w : witness) (caps ps : list N) : bool :=
  match w with
  | Average => by_average caps ps
  | Pigeonhole l k => by_pigeonhole l k caps ps
  | Count j => by_count j caps ps
  | Dual weights => by_dual caps (attach ps weights)
  | Cover => by_cover caps ps
  end.

(** jobs from the largest, everything in units of the sizes' common divisor *)
Definition check (w : witness) (caps ps : list N) : bool :=
  let g := common ps in
  (0 <? g)%N && refutes w (in_units g caps) (Descend.sort (in_units g ps)).

(** ** Its soundness *)

Lemma attach_sizes ps : forall table, map fst (attach ps table) = ps.
Proof. induction ps as [|p ps IH]; intros table; simpl; [|rewrite IH]; reflexivity. Qed.

Lemma refutes_sound w : forall caps ps, refutes w caps ps = true -> refuted caps ps.
Proof.
  destruct w as [|l k|j|weights|]; intros caps ps H; simpl in H.
  - now apply T7_average_sound.
  - eapply T7_pigeonhole_sound; eauto.
  - eapply T7_count_sound; eauto.
  - rewrite <- (attach_sizes ps weights). now apply T7_dual_sound.
  - now apply T7_cover_sound.
Qed.

Theorem T7_check_sound : forall w caps ps, check w caps ps = true -> refuted caps ps.
Proof.
  unfold check. intros w caps ps H. apply andb_prop in H. destruct H as [Hg H]. apply N.ltb_lt in Hg.
  apply refuted_units; [lia|].
  eapply refuted_perm; [apply Descend.Permuted_sort|]. eapply refutes_sound; eauto.
Qed.

(** ** One sender *)

(** equal rails, bytes *)
Theorem T7_local : forall w R ps B, check w (repeat (B - 1)%N R) ps = true ->
  forall a, placed R ps a -> (B <= makespan R ps a)%N.
Proof. intros w R ps B H. apply T7_bytes. eapply T7_check_sound; eauto. Qed.

(** rails with speeds, time *)
Theorem T7_local_time : forall w speeds ps p q, check w (map (room p (Npos q)) speeds) ps = true ->
  forall a t, placed (length speeds) ps a -> finishes speeds ps a t -> ((Z.of_N p # q) <= t)%Q.
Proof. intros w speeds ps p q H. apply T7_time. eapply T7_check_sound; eauto. Qed.

(** ** The whole fabric: chunks between nodes, both sides of every NIC *)

Record chunk := Chunk { src : nat; dst : nat; size : N }.

(** the instance as it is written down, pair by pair: sizes that occur often as (size, how many), the others
    one by one; a plan's rails in the same order, as (rail, how many in a row) *)
Definition chunks_of (l : list (N * N * list (N * N) * list N)) : list chunk :=
  flat_map (fun g => let '(s, d, runs, singles) := g in
    let chunk := Chunk (N.to_nat s) (N.to_nat d) in
    flat_map (fun r => repeat (chunk (fst r)) (N.to_nat (snd r))) runs ++ map chunk singles) l.
Definition runs_of (l : list (N * N)) : list nat :=
  flat_map (fun r => repeat (N.to_nat (fst r)) (N.to_nat (snd r))) l.
(** an assignment of jobs, one rail each *)
Definition rails_of (l : list N) : list nat := map N.to_nat l.

Definition is_plan (R : nat) (cs : list chunk) (rail : list nat) : Prop :=
  length rail = length cs /\ Forall (fun r => r < R) rail.

(** bytes at NIC [n] of node [k]; the key is [src] for what it sends, [dst] for what it receives *)
Definition bytes (key : chunk -> nat) (cs : list chunk) (rail : list nat) (k n : nat) : N :=
  total (map size (filter (fun c => key c =? k) (on n cs rail))).
Definition rate (rates : list (list N)) (k n : nat) : N := nth n (nth k rates []) 0%N.

(** every NIC of the M nodes is done by time [t] *)
Definition on_time (M R : nat) (tx rx : list (list N)) (cs : list chunk) (rail : list nat) (t : Q) : Prop :=
  forall k n, k < M -> n < R ->
    (inject_Z (Z.of_N (bytes src cs rail k n)) <= t * inject_Z (Z.of_N (rate tx k n)))%Q /\
    (inject_Z (Z.of_N (bytes dst cs rail k n)) <= t * inject_Z (Z.of_N (rate rx k n)))%Q.

(** *** Lifting: what bounds one node's sends or receives bounds the fabric *)

Definition mine (key : chunk -> nat) (k : nat) (cs : list chunk) : list N :=
  map size (filter (fun c => key c =? k) cs).
Definition my_rails (key : chunk -> nat) (k : nat) (cs : list chunk) (rail : list nat) : list nat :=
  map snd (filter (fun z => key (fst z) =? k) (combine cs rail)).

Lemma mine_placed key k R cs rail : is_plan R cs rail -> placed R (mine key k cs) (my_rails key k cs rail).
Proof.
  unfold is_plan, placed, mine, my_rails. intros [L F]. revert rail L F.
  induction cs as [|c cs IH]; intros [|r rail] L F; try discriminate; [split; auto|].
  inversion_clear F as [|? ? Hr F']. destruct (IH rail ltac:(simpl in L; lia) F') as [A B].
  simpl. destruct (key c =? k); simpl; [split; [lia|]|split]; auto.
Qed.

Lemma mine_load key k cs rail n : load (mine key k cs) (my_rails key k cs rail) n = bytes key cs rail k n.
Proof.
  unfold load, mine, my_rails, bytes. f_equal. revert rail.
  induction cs as [|c cs IH]; intros [|r rail]; try reflexivity.
  - unfold on. rewrite !combine_nil. cbn [filter map]. reflexivity.
  - rewrite on_cons. simpl combine. simpl filter. specialize (IH rail).
    destruct (key c =? k) eqn:E; cbn [map fst snd].
    + rewrite on_cons, IH. destruct (r =? n); cbn [app filter]; [rewrite E|]; reflexivity.
    + rewrite IH. destruct (r =? n); cbn [app filter]; [rewrite E|]; reflexivity.
Qed.

Inductive side := Send | Receive.
Definition key_of (s : side) : chunk -> nat := match s with Send => src | Receive => dst end.

Definition check_node (w : witness) (s : side) (k M R : nat) (tx rx : list (list N)) (cs : list chunk)
    (p : N) (q : positive) : bool :=
  let rates := nth k (match s with Send => tx | Receive => rx end) [] in
  (k <? M) && (length rates =? R) && check w (map (room p (Npos q)) rates) (mine (key_of s) k cs).

Theorem T7_node : forall w s k M R tx rx cs p q, check_node w s k M R tx rx cs p q = true ->
  forall rail t, is_plan R cs rail -> on_time M R tx rx cs rail t -> ((Z.of_N p # q) <= t)%Q.
Proof.
  unfold check_node. intros w s k M R tx rx cs p q H rail t P T. apply andb_prop in H. destruct H as [H Hc].
  apply andb_prop in H. destruct H as [Hk HR]. apply Nat.ltb_lt in Hk. apply Nat.eqb_eq in HR.
  eapply (T7_local_time _ _ _ _ _ Hc (my_rails (key_of s) k cs rail)).
  - rewrite HR. now apply mine_placed.
  - intros n Hn. rewrite HR in Hn. rewrite mine_load. specialize (T k n Hk Hn).
    destruct s; simpl key_of; unfold rate in T; tauto.
Qed.

(** *** The other half: a plan that attains a value *)

Definition check_plan (M R : nat) (tx rx : list (list N)) (cs : list chunk) (rail : list nat)
    (p : N) (q : positive) : bool :=
  let loads := map (fun n => on n cs rail) (seq 0 R) in
  let fine := fun (key : chunk -> nat) rates => forallb (fun k =>
    forallb (fun n => (Npos q * total (map size (filter (fun c => (key c =? k)%nat) (nth n loads []))) <=? p * rate rates k n)%N)
      (seq 0 R)) (seq 0 M) in
  (length rail =? length cs) && forallb (fun r => r <? R) rail && fine src tx && fine dst rx.

Theorem T7_plan : forall M R tx rx cs rail p q, check_plan M R tx rx cs rail p q = true ->
  exists rail, is_plan R cs rail /\ on_time M R tx rx cs rail (Z.of_N p # q).
Proof.
  unfold check_plan. intros M R tx rx cs rail p q H. apply andb_prop in H. destruct H as [H Hr].
  apply andb_prop in H. destruct H as [H Ht]. apply andb_prop in H. destruct H as [HL HF].
  exists rail. split; [split|].
  - now apply Nat.eqb_eq.
  - rewrite forallb_forall in HF. apply Forall_forall. intros r Hin. now apply Nat.ltb_lt, HF.
  - intros k n Hk Hn.
    assert (A : forall key rates, forallb (fun k => forallb (fun n =>
        (Npos q * total (map size (filter (fun c => (key c =? k)%nat) (nth n (map (fun n => on n cs rail) (seq 0 R)) [])))
          <=? p * rate rates k n)%N) (seq 0 R)) (seq 0 M) = true ->
      (inject_Z (Z.of_N (bytes key cs rail k n)) <= (Z.of_N p # q) * inject_Z (Z.of_N (rate rates k n)))%Q).
    { intros key rates G. rewrite forallb_forall in G. specialize (G k ltac:(apply in_seq; lia)).
      rewrite forallb_forall in G. specialize (G n ltac:(apply in_seq; lia)). apply N.leb_le in G.
      apply scaled_le. unfold bytes.
      rewrite (nth_indep _ [] (on 0 cs rail)) in G by (rewrite map_length, seq_length; lia).
      rewrite (map_nth (fun n => on n cs rail)), seq_nth in G by lia. exact G. }
    split; apply A; assumption.
Qed.
