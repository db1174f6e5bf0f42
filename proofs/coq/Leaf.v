(** * Rails of several leaves: the links above a group of nodes

    A leaf switch has the NICs of a group of nodes on some rails.  What a node of the group sends to
    another group on these rails goes up one of the leaf's links, and comes down one of the other
    group's leaf.  [up l] and [down l] are what crosses leaf [l] of the group. *)
From Coq Require Import Arith Lia List Bool.
From Rails Require Import Sums Model.

(** ** Definitions *)
Section Leaf.
  Variables M N L U : nat.                         (* nodes, rails, leaves of the group, links of a leaf *)
  Variable D : nat -> nat -> nat.                  (* bytes from node k to node f *)
  Variable x : nat -> nat -> nat -> nat.           (* those on rail n *)
  Variable A : nat -> bool.                        (* the nodes of the group *)
  Variable leaf : nat -> nat.                      (* the leaf of the group that rail n has *)

  (** bytes of [d] that leave the group *)
  Definition leaving (d : nat -> nat -> nat) : nat :=
    sum M (fun k => if A k then sum M (fun f => if A f then 0 else d k f) else 0).
  (** bytes of [d] that enter it *)
  Definition entering (d : nat -> nat -> nat) : nat := leaving (fun k f => d f k).

  (** bytes of rails that have this leaf *)
  Definition on_leaf (l : nat) (load : nat -> nat) : nat := sum N (fun n => if leaf n =? l then load n else 0).
  Definition up (l : nat) : nat := on_leaf l (fun n => leaving (fun k f => x k f n)).
  Definition down (l : nat) : nat := on_leaf l (fun n => entering (fun k f => x k f n)).

  (** what the group's NICs below a leaf do in a second *)
  Definition below (rate : nat -> nat -> nat) (l : nat) : nat :=
    on_leaf l (fun n => sum M (fun k => if A k then rate k n else 0)).

  Lemma leaving_le d e : (forall k f, k < M -> f < M -> d k f <= e k f) -> leaving d <= leaving e.
  Proof.
    intros H. unfold leaving. apply sum_le. intros k K. destruct (A k); [|lia].
    apply sum_le. intros f F. destruct (A f); [lia|]. now apply H.
  Qed.

  Lemma leaving_ext d e : (forall k f, k < M -> f < M -> d k f = e k f) -> leaving d = leaving e.
  Proof. intros H. apply Nat.le_antisymm; apply leaving_le; intros; rewrite H by lia; lia. Qed.

  Lemma leaving_mul c d : c * leaving d = leaving (fun k f => c * d k f).
  Proof.
    unfold leaving. rewrite sum_mul. apply sum_ext. intros k _. destruct (A k); [|lia].
    rewrite sum_mul. apply sum_ext. intros f _. destruct (A f); lia.
  Qed.

  Lemma leaving_sum n (d : nat -> nat -> nat -> nat) :
    leaving (fun k f => sum n (d k f)) = sum n (fun i => leaving (fun k f => d k f i)).
  Proof.
    unfold leaving. rewrite sum_swap. apply sum_ext. intros k _. destruct (A k); [|symmetry; now apply sum_0].
    rewrite sum_swap. apply sum_ext. intros f _. destruct (A f); [symmetry; now apply sum_0|reflexivity].
  Qed.

  Lemma leaves_hold load : (forall n, n < N -> leaf n < L) -> sum L (fun l => on_leaf l load) = sum N load.
  Proof.
    intros H. unfold on_leaf. rewrite sum_swap. apply sum_ext. intros n Hn.
    rewrite (sum_ext L _ (fun l => if l =? leaf n then load n else 0)) by (intros l _; rewrite Nat.eqb_sym; reflexivity).
    exact (sum_pick L (leaf n) (fun _ => load n) (H n Hn)).
  Qed.

  (** ** T17, what crosses a cut takes as long as the leaves need for it *)
  Lemma cut_of (d : nat -> nat -> nat) (y : nat -> nat -> nat -> nat) p q cap :
    (forall k f, k < M -> f < M -> sum N (y k f) = d k f) -> (forall n, n < N -> leaf n < L) ->
    (forall l, l < L -> q * on_leaf l (fun n => leaving (fun k f => y k f n)) <= p * cap l) ->
    q * leaving d <= p * sum L cap.
  Proof.
    intros F H C. rewrite <- (leaving_ext (fun k f => sum N (y k f)) d F), leaving_sum.
    rewrite <- (leaves_hold (fun n => leaving (fun k f => y k f n)) H), !sum_mul. now apply sum_le.
  Qed.

  Theorem T17_cut : feasible M N D x -> (forall n, n < N -> leaf n < L) -> forall p q cap,
    ((forall l, l < L -> q * up l <= p * cap l) -> q * leaving D <= p * sum L cap) /\
    ((forall l, l < L -> q * down l <= p * cap l) -> q * entering D <= p * sum L cap).
  Proof.
    intros F H p q cap. split; intros C.
    - now apply (cut_of D x).
    - apply (cut_of (fun k f => D f k) (fun k f n => x f k n)); auto.
  Qed.

  (** within a time p/q the links of a leaf, and the NICs below it, carry so much *)
  Lemma links_carry p q rate load (link : nat -> nat -> nat) l :
    sum U (link l) = load l -> (forall u, u < U -> q * link l u <= p * rate) -> q * load l <= p * (U * rate).
  Proof. intros S C. rewrite <- S, sum_mul. apply Nat.le_trans with (U * (p * rate)); [now apply sum_le_const|lia]. Qed.

  Lemma nics_carry p q tx l : (forall k n, k < M -> n < N -> q * Snd M x k n <= p * tx k n) -> q * up l <= p * below tx l.
  Proof.
    intros C. unfold up, below, on_leaf. rewrite !sum_mul. apply sum_le. intros n Hn. destruct (leaf n =? l); [|lia].
    unfold leaving. rewrite !sum_mul. apply sum_le. intros k K. destruct (A k); [|lia].
    apply Nat.le_trans with (q * Snd M x k n); [|now apply C]. apply Nat.mul_le_mono_l. unfold Snd.
    apply sum_le. intros f _. destruct (A f); lia.
  Qed.

  (** ** T17 as it is checked: every leaf carries no more than its links, nor than the NICs below *)
  Theorem T17_leaf : feasible M N D x -> (forall n, n < N -> leaf n < L) -> forall p q rate tx link,
    (forall k n, k < M -> n < N -> q * Snd M x k n <= p * tx k n) ->
    (forall l, l < L -> sum U (link l) = up l) ->
    (forall l u, l < L -> u < U -> q * link l u <= p * rate) ->
    q * leaving D <= p * sum L (fun l => min (U * rate) (below tx l)).
  Proof.
    intros F H p q rate tx link C S K. apply (proj1 (T17_cut F H p q _)). intros l Hl.
    assert (q * up l <= p * (U * rate)) by (apply (links_carry p q rate up link l); auto).
    assert (q * up l <= p * below tx l) by now apply nics_carry.
    destruct (Nat.min_dec (U * rate) (below tx l)) as [->| ->]; assumption.
  Qed.

  (** ** T17b, links as fast as the NICs below them never wait longer than these, whatever the plan *)
  Theorem T17_wide : forall p q rate tx l, (forall k n, k < M -> n < N -> q * Snd M x k n <= p * tx k n) ->
    below tx l <= U * rate -> q * up l <= p * (U * rate).
  Proof.
    intros p q rate tx l C W. apply Nat.le_trans with (p * below tx l); [now apply nics_carry|].
    now apply Nat.mul_le_mono_l.
  Qed.

  (** ** T17a, where every pair is split evenly over the rails, so are the links above them *)
  Theorem T17_even : (forall k f n, k < M -> f < M -> n < N -> N * x k f n = D k f) -> forall n, n < N ->
    N * leaving (fun k f => x k f n) = leaving D /\ N * entering (fun k f => x k f n) = entering D.
  Proof.
    intros E n Hn. split; [|unfold entering]; rewrite leaving_mul; apply leaving_ext; intros k f K G; now apply E.
  Qed.

  (** ... and spread over all links of a leaf, they need no longer than the cut says *)
  Theorem T17_attained : (forall k f n, k < M -> f < M -> n < N -> N * x k f n = D k f) -> forall p q rate n, n < N ->
    q * leaving D <= p * (N * (U * rate)) -> q * leaving (fun k f => x k f n) <= p * (U * rate).
  Proof.
    intros E p q rate n Hn C. destruct (T17_even E n Hn) as [T _]. rewrite <- T in C. nia.
  Qed.
End Leaf.
