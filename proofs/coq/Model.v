(** * The rail model: demands, splits, loads (divisible traffic)

    [M] nodes, [N] rails.  NIC [n] of every node is cabled to rail [n], so what node [k]
    puts on rail [n] for node [f] also arrives on rail [n].  A _split_ [x k f n] says how
    many bytes of the demand [D k f] take rail [n]. *)
From Coq Require Import Arith Lia List Bool.
From Rails Require Import Sums.

(** ** Definitions *)
Section Model.
  Variables (M N : nat).               (* nodes, rails *)
  Variable D : nat -> nat -> nat.      (* D k f   : bytes from node k to node f *)
  Variable x : nat -> nat -> nat -> nat. (* x k f n : those put on rail n *)

  Definition feasible : Prop :=
    forall k f, k < M -> f < M -> sum N (fun n => x k f n) = D k f.
  Definition Snd (k n : nat) : nat := sum M (fun f => x k f n).
  Definition Rcv (f n : nat) : nat := sum M (fun k => x k f n).
  Definition row (k : nat) : nat := sum M (fun f => D k f).
  Definition col (f : nat) : nat := sum M (fun k => D k f).
  Definition senders (f : nat) : nat := count M (fun k => 0 <? D k f).
  Definition receivers (k : nat) : nat := count M (fun f => 0 <? D k f).

  (** one pair's rails differ by at most [q] bytes: what cutting into chunks of [q] allows *)
  Definition chunked (q : nat) : Prop :=
    forall k f n n', k < M -> f < M -> n < N -> n' < N -> x k f n <= x k f n' + q.

  (** ** Facts used throughout *)
  Lemma x_le_D : feasible -> forall k f n, k < M -> f < M -> n < N -> x k f n <= D k f.
  Proof.
    intros F k f n Hk Hf Hn. rewrite <- (F k f Hk Hf).
    exact (sum_single N (fun n => x k f n) n Hn).
  Qed.

  Lemma x_le_S : forall k f n, f < M -> x k f n <= Snd k n.
  Proof. intros k f n Hf. exact (sum_single M (fun f => x k f n) f Hf). Qed.


  (** ** T0, the lower bound: whatever the split, some rail of every node carries at least
      the node's average, on either side.  So "optimal" below means something. *)
  Theorem T0_lower : feasible -> 1 <= N ->
    (forall f, f < M -> exists n, n < N /\ col f <= N * Rcv f n) /\
    (forall k, k < M -> exists n, n < N /\ row k <= N * Snd k n).
  Proof.
    intros F HN.
    assert (Av : forall g t, sum N g = t -> exists n, n < N /\ t <= N * g n).
    { intros g t E. destruct t as [|t]; [exists 0; split; lia|].
      assert (P : sum N (fun _ => t) < sum N (fun n => N * g n)).
      { rewrite <- sum_mul, E, sum_const. nia. }
      rewrite sum_const in P. apply sum_pigeon in P. destruct P as (n & Hn & P).
      exists n. split; auto. }
    split.
    - intros f Hf. apply Av. unfold Rcv, col. rewrite <- sum_swap. apply sum_ext.
      intros k Hk. now apply F.
    - intros k Hk. apply Av. unfold Snd, row. rewrite <- sum_swap. apply sum_ext.
      intros f Hf. now apply F.
  Qed.
End Model.
