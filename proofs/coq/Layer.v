(** * One layer, any placement: prices of tokens and slots bound what no copies and no split beat

    Experts are held by nodes that have slots; every token is computed on a node that holds its
    expert, and one that leaves its node crosses that node's NICs and those of the other.  Copies may
    be there already: they need no slot.  Prices of a token sent, of a token received and of a slot,
    whatever they are, give a bound. *)
From Coq Require Import Arith NArith ZArith QArith Lia List Bool.
From Rails Require Import Sums.
Import ListNotations.
Open Scope nat_scope.

(** ** The argument, of functions *)

Section Expert.
  Variable M : nat.                                (* nodes *)
  Variables u v w : nat -> nat.                    (* prices of a token received, of one sent, of a slot *)

  (** the cheapest holder is [b]: every other node holds the expert too, or sends its tokens *)
  Definition cost (n : nat -> nat) (b : nat) : nat :=
    sum M (fun a => if a =? b then w a else min (w a) (n a * (v a + u b))).

  Lemma cheapest_holder (y : nat -> bool) : forall m, (exists b, b < m /\ y b = true) ->
    exists b, b < m /\ y b = true /\ forall c, c < m -> y c = true -> u b <= u c.
  Proof.
    induction m as [|m IH]; intros (b & B & Y); [lia|].
    destruct (le_lt_dec m b) as [D|D].
    - assert (b = m) by lia. subst b.
      destruct (existsb y (seq 0 m)) eqn:X.
      + apply existsb_exists in X. destruct X as (c & C & Yc). apply in_seq in C.
        destruct IH as (d & Hd & Yd & Ld); [exists c; split; [lia|exact Yc]|].
        destruct (le_lt_dec (u d) (u m)).
        * exists d. repeat split; [lia|exact Yd|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [lia|apply Ld; [lia|exact Yz]].
        * exists m. repeat split; [lia|exact Y|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [lia|].
          specialize (Ld z ltac:(lia) Yz). lia.
      + exists m. repeat split; [lia|exact Y|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [lia|].
        exfalso. assert (existsb y (seq 0 m) = true); [|congruence].
        apply existsb_exists. exists z. split; [apply in_seq; lia|exact Yz].
    - destruct IH as (d & Hd & Yd & Ld); [exists b; split; [lia|exact Y]|].
      destruct (y m) eqn:Ym; [destruct (le_lt_dec (u d) (u m))|].
      + exists d. repeat split; [lia|exact Yd|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [lia|apply Ld; [lia|exact Yz]].
      + exists m. repeat split; [lia|exact Ym|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [lia|].
        specialize (Ld z ltac:(lia) Yz). lia.
      + exists d. repeat split; [lia|exact Yd|]. intros z Hz Yz. destruct (Nat.eq_dec z m) as [->|]; [congruence|apply Ld; [lia|exact Yz]].
  Qed.

  (** what one expert pays: its slots, and its tokens that leave their nodes *)
  Lemma expert_pays (n : nat -> nat) (y : nat -> bool) (x : nat -> nat -> nat) (least : nat) :
    (exists b, b < M /\ y b = true) ->
    (forall a b, a < M -> b < M -> 0 < x a b -> y b = true) ->
    (forall a, a < M -> sum M (x a) = n a) ->
    (forall b, b < M -> least <= cost n b) ->
    least <= sum M (fun a => (if y a then w a else 0) + sum M (fun c => if c =? a then 0 else x a c * (v a + u c))).
  Proof.
    intros Some_ Held All Least.
    destruct (cheapest_holder y M Some_) as (b & B & Yb & Lb).
    apply Nat.le_trans with (cost n b); [now apply Least|]. unfold cost. apply sum_le. intros a Ha.
    destruct (Nat.eqb_spec a b) as [->|D]; [rewrite Yb; lia|].
    destruct (y a) eqn:Ya; [lia|].
    apply Nat.le_trans with (n a * (v a + u b)); [lia|]. rewrite <- (All a Ha).
    rewrite Nat.mul_comm, sum_mul. cbn [Nat.add]. apply sum_le. intros c Hc.
    destruct (x a c) as [|k] eqn:X; [rewrite Nat.mul_0_r; lia|].
    assert (Yc : y c = true) by (apply (Held a c Ha Hc); lia).
    destruct (Nat.eqb_spec c a) as [->|]; [congruence|]. specialize (Lb c Hc Yc). nia.
  Qed.

End Expert.

Section Layer.
  Variables M E : nat.                             (* nodes, experts *)
  Variables u v w : nat -> nat.                    (* prices as above *)
  Variables slots : nat -> nat.                    (* beside the copies that are there *)
  Variable h : nat -> nat -> bool.                 (* whether an expert has a copy on a node already *)
  Variable n : nat -> nat -> nat.                  (* tokens of an expert on a node *)

  (** a placement [y] (node, expert) in the slots, and [x e a b] tokens of [a] for [e] computed on [b] *)
  Definition placed (y : nat -> nat -> bool) (x : nat -> nat -> nat -> nat) : Prop :=
    (forall e, e < E -> exists b, b < M /\ y b e = true) /\
    (forall b, b < M -> count E (fun e => y b e && negb (h e b)) <= slots b) /\
    (forall e a b, e < E -> a < M -> b < M -> 0 < x e a b -> y b e = true) /\
    (forall e a, e < E -> a < M -> sum M (x e a) = n e a).

  Definition sent (x : nat -> nat -> nat -> nat) (a : nat) : nat :=
    sum E (fun e => sum M (fun b => if b =? a then 0 else x e a b)).
  Definition received (x : nat -> nat -> nat -> nat) (b : nat) : nat :=
    sum E (fun e => sum M (fun a => if b =? a then 0 else x e a b)).

  (** a slot of a node that holds the expert costs nothing *)
  Definition unheld (e a : nat) : nat := if h e a then 0 else w a.

  Lemma slots_paid y : (forall b, b < M -> count E (fun e => y b e && negb (h e b)) <= slots b) ->
    sum E (fun e => sum M (fun a => if y a e then unheld e a else 0)) <= sum M (fun a => w a * slots a).
  Proof.
    intros S. rewrite sum_swap. apply sum_le. intros a Ha. specialize (S a Ha).
    rewrite (sum_ext E _ (fun e => w a * (if y a e && negb (h e a) then 1 else 0))).
    - rewrite <- sum_mul. unfold count in S. nia.
    - intros e _. unfold unheld. destruct (y a e), (h e a); cbn [andb negb]; lia.
  Qed.

  Lemma tokens_paid x :
    sum E (fun e => sum M (fun a => sum M (fun c => if c =? a then 0 else x e a c * (v a + u c))))
    = sum M (fun a => v a * sent x a) + sum M (fun c => u c * received x c).
  Proof.
    rewrite (sum_ext E _ (fun e => sum M (fun a => sum M (fun c => v a * (if c =? a then 0 else x e a c)))
      + sum M (fun a => sum M (fun c => u c * (if c =? a then 0 else x e a c))))).
    - rewrite sum_add. f_equal.
      + rewrite sum_swap. apply sum_ext. intros a _. unfold sent. rewrite sum_mul. apply sum_ext. intros e _. now rewrite sum_mul.
      + rewrite (sum_ext E _ (fun e => sum M (fun c => sum M (fun a => u c * (if c =? a then 0 else x e a c)))))
          by (intros; apply sum_swap).
        rewrite sum_swap. apply sum_ext. intros c _. unfold received. rewrite sum_mul. apply sum_ext. intros e _. now rewrite sum_mul.
    - intros e _. rewrite <- sum_add. apply sum_ext. intros a _. rewrite <- sum_add. apply sum_ext. intros c _.
      destruct (c =? a); lia.
  Qed.

  (** T16: what any placement pays at these prices *)
  Theorem T16_paid : forall y x (least : nat -> nat), placed y x ->
    (forall e b, e < E -> b < M -> least e <= cost M u v (unheld e) (n e) b) ->
    sum E least <= sum M (fun a => w a * slots a) + sum M (fun a => v a * sent x a) + sum M (fun c => u c * received x c).
  Proof.
    intros y x least (Some_ & S & Held & All) Least.
    apply Nat.le_trans with (sum E (fun e => sum M (fun a => if y a e then unheld e a else 0)
      + sum M (fun a => sum M (fun c => if c =? a then 0 else x e a c * (v a + u c))))).
    - apply sum_le. intros e He. rewrite <- sum_add.
      apply (expert_pays M u v (unheld e) (n e) (fun a => y a e) (x e)); auto.
      intros a b Ha Hb. now apply Held.
    - rewrite sum_add, tokens_paid. pose proof (slots_paid y S). lia.
  Qed.
End Layer.

(** prices times what NICs carry within a time *)
Lemma scaled n (f g k : nat -> nat) (c d : Z) :
  (forall i, i < n -> (Z.of_nat (f i) * d <= c * Z.of_nat (g i))%Z) ->
  (Z.of_nat (sum n (fun i => (k i * f i)%nat)) * d <= c * Z.of_nat (sum n (fun i => (k i * g i)%nat)))%Z.
Proof.
  induction n as [|n IH]; intros H; cbn [sum]; [lia|].
  specialize (IH ltac:(intros; apply H; lia)). specialize (H n ltac:(lia)). nia.
Qed.

(** ** Lists that a certificate has: of each expert, the tokens of every node, and 0 where it has no copy yet *)

Definition at_ (l : list N) (i : nat) : nat := N.to_nat (nth i l 0%N).
Definition of_expert (tokens : list (list N)) (e a : nat) : nat := at_ (nth e tokens []) a.
Definition holds_ (held : list (list N)) (e a : nat) : bool := negb (of_expert held e a =? 0)%nat.

(** whatever the placement and the split: if every node sends and receives within [t], then [b <= t] *)
Definition layer_bounded (tokens held : list (list N)) (slots tx rx : list N) (bytes : N) (b : Q) : Prop :=
  forall y x t, placed (length slots) (length tokens) (at_ slots) (holds_ held) (of_expert tokens) y x ->
    (forall a, a < length slots ->
      (inject_Z (Z.of_N bytes * Z.of_nat (sent (length slots) (length tokens) x a)) <= t * inject_Z (Z.of_nat (at_ tx a)))%Q /\
      (inject_Z (Z.of_N bytes * Z.of_nat (received (length slots) (length tokens) x a)) <= t * inject_Z (Z.of_nat (at_ rx a)))%Q) ->
    (b <= t)%Q.

(** ** The check *)

Open Scope N_scope.

Fixpoint paid (i b : nat) (ub : N) (v w col : list N) : N :=
  match v, w, col with
  | x :: v, y :: w, n :: col => (if (i =? b)%nat then y else N.min y (n * (x + ub))) + paid (S i) b ub v w col
  | _, _, _ => 0
  end.
Definition costs (u v w col : list N) : list N :=
  map (fun z => paid 0 (fst z) (snd z) v w col) (combine (seq 0 (length u)) u).
Definition least_of (l : list N) : N := match l with [] => 0 | c :: l => fold_left N.min l c end.
Fixpoint dot (xs ys : list N) : N :=
  match xs, ys with x :: xs, y :: ys => x * y + dot xs ys | _, _ => 0 end.

Fixpoint priced (w h : list N) : list N :=
  match w, h with y :: w, k :: h => (if k =? 0 then y else 0) :: priced w h | _, _ => w end.
Fixpoint all_pay (u v w : list N) (tokens held : list (list N)) : N :=
  match tokens with
  | [] => 0
  | col :: tokens => least_of (costs u v (priced w (hd [] held)) col) + all_pay u v w tokens (tl held)
  end.

Definition nodes_of (M : nat) (l : list N) : bool := (length l =? M)%nat.
Definition layer_formed (tokens : list (list N)) (slots tx rx : list N) : bool :=
  forallb (nodes_of (length slots)) (tx :: rx :: tokens).

Definition check_layer (tokens held : list (list N)) (slots tx rx : list N) (bytes : N) (u v w : list N) (p : N) (q : positive) : bool :=
  let room := dot u rx + dot v tx in
  layer_formed tokens slots tx rx && forallb (nodes_of (length slots)) [u; v; w] && (0 <? room)
  && (p * room <=? Npos q * (bytes * (all_pay u v w tokens held - dot w slots))).

Lemma sum_first f : forall n, (sum (S n) f = f O + sum n (fun i => f (S i)))%nat.
Proof. induction n as [|n IH]; [cbn; lia|]. cbn [sum] in *. lia. Qed.

Lemma paid_spec b ub : forall v w col i M, length v = M -> length w = M -> length col = M ->
  N.to_nat (paid i b ub v w col)
  = sum M (fun a => if (i + a =? b)%nat then at_ w a else min (at_ w a) (at_ col a * (at_ v a + N.to_nat ub)))%nat.
Proof.
  induction v as [|x v IH]; intros [|y w] [|n col] i M V W C; cbn [length] in *; subst M; try discriminate; [reflexivity|].
  cbn [paid]. rewrite sum_first, N2Nat.inj_add, (IH w col (S i) (length v)) by lia. f_equal.
  - rewrite Nat.add_0_r. cbn [at_ nth]. destruct (i =? b)%nat; [reflexivity|]. unfold at_. cbn [nth]. lia.
  - apply sum_ext. intros a _. rewrite <- Nat.add_succ_comm. reflexivity.
Qed.

Lemma dot_spec : forall xs ys M, length xs = M -> length ys = M ->
  N.to_nat (dot xs ys) = sum M (fun a => at_ xs a * at_ ys a)%nat.
Proof.
  induction xs as [|x xs IH]; intros [|y ys] M X Y; cbn [length] in *; subst M; try discriminate; [reflexivity|].
  cbn [dot]. rewrite sum_first, N2Nat.inj_add, (IH ys (length xs)) by lia. unfold at_. cbn [nth]. lia.
Qed.

Lemma priced_spec : forall w h a, at_ (priced w h) a = (if negb (at_ h a =? 0) then 0 else at_ w a)%nat.
Proof.
  induction w as [|y w IH]; intros [|k h] a; cbn [priced].
  - unfold at_. destruct a; reflexivity.
  - unfold at_. destruct a; cbn [nth]; destruct (_ =? 0)%nat; reflexivity.
  - unfold at_. destruct a; reflexivity.
  - destruct a as [|a]; [|exact (IH h a)]. unfold at_. cbn [nth]. destruct (N.eqb_spec k 0) as [->|D]; [reflexivity|].
    destruct (Nat.eqb_spec (N.to_nat k) 0); [lia|reflexivity].
Qed.

Lemma priced_length : forall w h, length (priced w h) = length w.
Proof. induction w as [|y w IH]; intros [|k h]; cbn [priced length]; auto. Qed.

Lemma all_pay_spec u v w : forall tokens held,
  N.to_nat (all_pay u v w tokens held)
  = sum (length tokens) (fun e => N.to_nat (least_of (costs u v (priced w (nth e held [])) (nth e tokens [])))).
Proof.
  induction tokens as [|col tokens IH]; intros held; [reflexivity|].
  cbn [all_pay length]. rewrite sum_first, N2Nat.inj_add, IH. cbn [nth]. f_equal.
  - destruct held; reflexivity.
  - apply sum_ext. intros e _. destruct held as [|k held]; [|reflexivity]. cbn [tl nth]. now destruct e.
Qed.

Lemma fold_min : forall l c x, x = c \/ In x l -> fold_left N.min l c <= x.
Proof.
  induction l as [|d l IH]; intros c x H; cbn [fold_left].
  - destruct H as [->|[]]. lia.
  - destruct H as [->|[->|H]].
    + apply N.le_trans with (N.min c d); [|lia]. apply IH. now left.
    + apply N.le_trans with (N.min c x); [|lia]. apply IH. now left.
    + apply IH. now right.
Qed.

Lemma least_spec l x : In x l -> least_of l <= x.
Proof. destruct l as [|c l]; intros H; [destruct H|]. cbn [least_of]. apply fold_min. destruct H; auto. Qed.

Lemma cost_listed u v w col M b : length u = M -> length v = M -> length w = M -> length col = M -> (b < M)%nat ->
  (N.to_nat (least_of (costs u v w col)) <= cost M (at_ u) (at_ v) (at_ w) (at_ col) b)%nat.
Proof.
  intros U V W C B.
  assert (P : N.to_nat (paid 0 b (nth b u 0) v w col) = cost M (at_ u) (at_ v) (at_ w) (at_ col) b)
    by exact (paid_spec b (nth b u 0) v w col 0 M V W C).
  rewrite <- P. enough (least_of (costs u v w col) <= paid 0 b (nth b u 0) v w col) by lia.
  apply least_spec. unfold costs.
  apply in_map_iff. exists (b, nth b u 0). split; [reflexivity|].
  replace (b, nth b u 0) with (nth b (combine (seq 0 (length u)) u) (0%nat, 0)).
  - apply nth_In. rewrite combine_length, seq_length. lia.
  - rewrite combine_nth by apply seq_length. f_equal. rewrite seq_nth by lia. reflexivity.
Qed.

Lemma cost_priced M u v w w' n b : (forall a, w a = w' a) -> cost M u v w n b = cost M u v w' n b.
Proof. intros W. unfold cost. apply sum_ext. intros a _. now rewrite W. Qed.

Theorem T16_layer : forall tokens held slots tx rx bytes u v w p q, check_layer tokens held slots tx rx bytes u v w p q = true ->
  layer_bounded tokens held slots tx rx bytes (Z.of_N p # q).
Proof.
  unfold check_layer, layer_formed, nodes_of. cbn zeta. intros tokens held slots tx rx bytes u v w p q H y x t P T.
  apply andb_prop in H. destruct H as [H K]. apply andb_prop in H. destruct H as [H R].
  apply andb_prop in H. destruct H as [L L']. cbn [forallb] in L, L'.
  apply andb_prop in L. destruct L as [Ltx L]. apply andb_prop in L. destruct L as [Lrx L].
  apply andb_prop in L'. destruct L' as [Lu L']. apply andb_prop in L'. destruct L' as [Lv L'].
  apply andb_prop in L'. destruct L' as [Lw _].
  apply Nat.eqb_eq in Ltx, Lrx, Lu, Lv, Lw. rewrite forallb_forall in L.
  apply N.ltb_lt in R. apply N.leb_le in K.
  pose (M := length slots). fold M in P, T, Ltx, Lrx, Lu, Lv, Lw, L.
  pose proof (T16_paid M (length tokens) (at_ u) (at_ v) (at_ w) (at_ slots) (holds_ held) (of_expert tokens) y x
    (fun e => N.to_nat (least_of (costs u v (priced w (nth e held [])) (nth e tokens [])))) P) as Q.
  assert (Q' := Q ltac:(intros e b He Hb; unfold of_expert;
    rewrite <- (cost_priced M (at_ u) (at_ v) (at_ (priced w (nth e held []))) _ _ b
      (fun a => priced_spec w (nth e held []) a));
    apply cost_listed; auto; [now rewrite priced_length|apply Nat.eqb_eq, L, nth_In; exact He])). clear Q.
  rewrite <- all_pay_spec in Q'.
  rewrite <- (dot_spec w slots M Lw eq_refl) in Q'.
  destruct t as [tn td].
  assert (S1 : forall i, (i < M)%nat ->
    (Z.of_nat (sent M (length tokens) x i) * (Z.of_N bytes * Zpos td) <= tn * Z.of_nat (at_ tx i))%Z).
  { intros i Hi. destruct (T i Hi) as [A _]. unfold Qle in A. cbn [Qnum Qden inject_Z Qmult] in A. lia. }
  assert (S2 : forall i, (i < M)%nat ->
    (Z.of_nat (received M (length tokens) x i) * (Z.of_N bytes * Zpos td) <= tn * Z.of_nat (at_ rx i))%Z).
  { intros i Hi. destruct (T i Hi) as [_ A]. unfold Qle in A. cbn [Qnum Qden inject_Z Qmult] in A. lia. }
  apply (scaled M _ _ (at_ v)) in S1. apply (scaled M _ _ (at_ u)) in S2.
  rewrite <- (dot_spec v tx M Lv Ltx) in S1. rewrite <- (dot_spec u rx M Lu Lrx) in S2.
  set (sv := sum M (fun i => (at_ v i * sent M (length tokens) x i)%nat)) in *.
  set (su := sum M (fun i => (at_ u i * received M (length tokens) x i)%nat)) in *.
  set (least := all_pay u v w tokens held) in *.
  rewrite N_nat_Z in S1, S2.
  assert (B : least - dot w slots <= N.of_nat sv + N.of_nat su) by lia.
  unfold Qle. cbn [Qnum Qden].
  assert (A1 : (Z.of_N p * Z.of_N (dot u rx + dot v tx) <= Zpos q * (Z.of_N bytes * (Z.of_nat sv + Z.of_nat su)))%Z) by nia.
  assert (A2 : ((Z.of_nat sv + Z.of_nat su) * (Z.of_N bytes * Zpos td) <= tn * Z.of_N (dot u rx + dot v tx))%Z) by lia.
  assert (R' : (0 < Z.of_N (dot u rx + dot v tx))%Z) by lia.
  set (room := Z.of_N (dot u rx + dot v tx)) in *. set (z := (Z.of_nat sv + Z.of_nat su)%Z) in *. nia.
Qed.
