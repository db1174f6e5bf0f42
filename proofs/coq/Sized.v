(** * T8 for chunks of different sizes: both sides within one largest chunk of the average

    Sort the chunks by size and cut every node's chunks, from the largest, into blocks of N.
    Colour the blocks properly (Koenig): each block spreads over different rails, a full one
    over all.  What a rail carries from block q + 1 is no larger than what any other rail
    carries from block q, so two rails of a node differ by at most one chunk of the first
    block.  List scheduling's guarantee (T5), on all senders and receivers at once. *)
From Coq Require Import Arith Lia List Bool Sorted Permutation.
From Rails Require Import Sums Koenig Equitable.
Import ListNotations.

Definition edge : Type := nat * nat.             (* sender, receiver *)
Definition copies : Type := (nat * nat) * (nat * nat).
Definition placed_chunk : Type := (edge * nat) * nat.   (* chunk with its size, rail *)

(** bytes of node [v] on rail [n]; [ends] is [fst] for what it sends, [snd] for what it receives *)
Definition carried (ends : edge -> nat) (H : list placed_chunk) (v n : nat) : nat :=
  list_sum (map (fun z => snd (fst z)) (filter (fun z => (ends (fst (fst z)) =? v) && (snd z =? n)) H)).

(** ** Blocks in order: a chunk of a later block is no larger *)
Section Side.
  Variables (ends : edge -> nat) (key : copies -> nat * nat) (N : nat).
  Hypothesis HN : 1 <= N.
  Hypothesis key_cons : forall e E, map key (splitE N (e :: E)) = (ends e, dg ends E (ends e) / N) :: map key (splitE N E).

  Lemma block_le E x : In x (map key (splitE N E)) -> snd x <= dg ends E (fst x) / N.
  Proof.
    induction E as [|e E IH]; [easy|]. rewrite key_cons. intros [<-|H]; cbn [fst snd].
    - apply Nat.div_le_mono; [lia|]. unfold dg. cbn [filter]. rewrite Nat.eqb_refl. simpl. lia.
    - specialize (IH H). etransitivity; [exact IH|]. apply Nat.div_le_mono; [lia|].
      unfold dg. cbn [filter]. destruct (ends e =? fst x); simpl; lia.
  Qed.

  (** what is in the list before is smaller, and in no earlier block *)
  Lemma blocks_ordered cs : StronglySorted le (map snd cs) ->
    forall x y p r, In (x, p) (combine (map key (splitE N (map fst cs))) (map snd cs)) ->
      In (y, r) (combine (map key (splitE N (map fst cs))) (map snd cs)) ->
      fst x = fst y -> snd y < snd x -> p <= r.
  Proof.
    induction cs as [|[e s] cs IH]; [easy|]. intros S x y p r Hx Hy E L.
    cbn [map fst snd] in *. rewrite key_cons in Hx, Hy. cbn [combine] in Hx, Hy.
    inversion_clear S as [|? ? S' F]. rewrite Forall_forall in F.
    destruct Hx as [Hx|Hx], Hy as [Hy|Hy].
    - injection Hx as <- <-. injection Hy as <- <-. simpl in L. lia.
    - injection Hx as <- <-. apply F. exact (in_combine_r _ _ _ _ Hy).
    - injection Hy as <- <-. apply in_combine_l, block_le in Hx. simpl in E, L. rewrite E in Hx. lia.
    - eapply IH; eauto.
  Qed.

  (** ** Two rails of one node *)
  Variables (cs : list (edge * nat)) (G : list (copies * nat)) (pmax v : nat).
  Hypothesis EG : map fst G = splitE N (map fst cs).
  Hypothesis Sorted_cs : StronglySorted le (map snd cs).
  Hypothesis Proper : NoDup (map (fun e => (key (fst e), snd e)) G).
  Hypothesis Rails : Forall (fun e => snd e < N) G.
  Hypothesis Small : Forall (fun p => p <= pmax) (map snd cs).
  Hypothesis Degree : forall q, length (filter (fun e => eqb eqP (key e) (v, q)) (splitE N (map fst cs))) =
    Nat.min N (dg ends (map fst cs) v - q * N).

  Let Z : list ((copies * nat) * nat) := combine G (map snd cs).
  (** the bytes that rail [n] carries from block [q] *)
  Let from (q n : nat) : nat :=
    list_sum (map snd (filter (fun z => eqb eqP (key (fst (fst z))) (v, q) && (snd (fst z) =? n)) Z)).

  Lemma lengths : length G = length (map snd cs).
  Proof.
    assert (L : forall E, length (splitE N E) = length E) by (induction E; simpl; auto).
    transitivity (length (map fst G)); [now rewrite map_length|]. now rewrite EG, L, !map_length.
  Qed.

  Lemma Z_keys z : In z Z -> In (key (fst (fst z)), snd z) (combine (map key (splitE N (map fst cs))) (map snd cs)).
  Proof.
    unfold Z. rewrite <- EG, map_map. generalize (map snd cs) as ps. clear. intros ps. revert ps.
    induction G as [|g G' IH]; intros [|p ps]; simpl; try easy. intros [<-|H]; [now left|]. right. now apply IH.
  Qed.

  Lemma Z_fst : map fst Z = G.
  Proof.
    unfold Z. pose proof lengths as L. revert L. generalize (map snd cs) as ps. clear. intros ps. revert ps.
    induction G as [|g G' IH]; intros [|p ps] L; simpl in *; try discriminate; auto. f_equal. apply IH. lia.
  Qed.

  (** one rail carries at most one chunk of a block *)
  Lemma at_most_one q n : from q n = 0 \/
    exists z, In z Z /\ key (fst (fst z)) = (v, q) /\ snd (fst z) = n /\ from q n = snd z.
  Proof.
    unfold from. set (P := fun z : (copies * nat) * nat => _ && _).
    assert (ND : NoDup (map (fun z => (key (fst (fst z)), snd (fst z))) (filter P Z))).
    { apply NoDup_map_filter. rewrite <- (map_map fst (fun e => (key (fst e), snd e))), Z_fst. exact Proper. }
    assert (In_P : forall z, In z (filter P Z) -> In z Z /\ key (fst (fst z)) = (v, q) /\ snd (fst z) = n).
    { intros z H. apply filter_In in H. destruct H as [H HP]. unfold P in HP. apply andb_prop in HP.
      destruct HP as [H1 H2]. apply eqb_eq in H1. apply Nat.eqb_eq in H2. auto. }
    destruct (filter P Z) as [|z [|z' l]] eqn:E; [now left| |].
    - right. exists z. destruct (In_P z (or_introl eq_refl)) as (A & B & C). repeat split; auto. simpl. lia.
    - exfalso. destruct (In_P z (or_introl eq_refl)) as (_ & B & C).
      destruct (In_P z' (or_intror (or_introl eq_refl))) as (_ & B' & C').
      cbn [map] in ND. inversion_clear ND as [|? ? Hn _]. apply Hn. left. congruence.
  Qed.

  (** a full block is on every rail *)
  Lemma full_block q n : n < N -> (q + 1) * N <= dg ends (map fst cs) v ->
    exists z, In z Z /\ key (fst (fst z)) = (v, q) /\ snd (fst z) = n.
  Proof.
    intros Hn Hd. set (l := filter (fun e : copies * nat => eqb eqP (key (fst e)) (v, q)) G).
    assert (Ll : length l = N).
    { unfold l. rewrite <- (filter_map_length fst (fun e => eqb eqP (key e) (v, q))), EG, Degree. nia. }
    assert (NDl : NoDup (map snd l)).
    { apply (NoDup_map_inv (fun c => ((v, q), c))). rewrite map_map.
      rewrite (map_ext_in _ (fun e => (key (fst e), snd e))); [now apply NoDup_map_filter|].
      intros e He. apply filter_In in He. destruct He as [_ He]. apply eqb_eq in He. now rewrite He. }
    assert (Il : incl (map snd l) (seq 0 N)).
    { intros a Ha. apply in_map_iff in Ha. destruct Ha as [e [<- He]]. apply filter_In in He.
      rewrite Forall_forall in Rails. apply in_seq. specialize (Rails e (proj1 He)). lia. }
    assert (J : incl (seq 0 N) (map snd l)).
    { apply NoDup_length_incl; auto. rewrite map_length, seq_length. lia. }
    assert (Hin : In n (map snd l)) by (apply J, in_seq; lia).
    apply in_map_iff in Hin. destruct Hin as [e [En He]]. apply filter_In in He. destruct He as [He Hk]. apply eqb_eq in Hk.
    rewrite <- Z_fst in He. apply in_map_iff in He. destruct He as [z [Ez Hz]]. exists z. subst e. auto.
  Qed.

  Lemma next_block q n n' : n < N -> n' < N -> from (q + 1) n <= from q n'.
  Proof.
    intros Hn Hn'. destruct (at_most_one (q + 1) n) as [->|(z & Hz & Kz & Nz & ->)]; [lia|].
    assert (Hd : (q + 1) * N < dg ends (map fst cs) v).
    { assert (1 <= Nat.min N (dg ends (map fst cs) v - (q + 1) * N)); [|lia]. rewrite <- Degree, <- EG, filter_map_length.
      assert (HG : In (fst z) G) by (rewrite <- Z_fst; now apply in_map).
      assert (HI : In (fst z) (filter (fun a => eqb eqP (key (fst a)) (v, q + 1)) G)) by (apply filter_In; split; auto; now apply eqb_eq).
      destruct (filter (fun a => eqb eqP (key (fst a)) (v, q + 1)) G); [destruct HI|simpl; lia]. }
    destruct (full_block q n' Hn' ltac:(lia)) as (z' & Hz' & Kz' & Nz').
    assert (A : snd z <= snd z').
    { apply Z_keys in Hz, Hz'. rewrite Kz in Hz. rewrite Kz' in Hz'.
      apply (blocks_ordered cs Sorted_cs (v, q + 1) (v, q) (snd z) (snd z') Hz Hz'); simpl; lia. }
    etransitivity; [exact A|]. unfold from.
    assert (Hf : In z' (filter (fun z => eqb eqP (key (fst (fst z))) (v, q) && (snd (fst z) =? n')) Z)).
    { apply filter_In. split; auto. apply andb_true_intro. split; [now apply eqb_eq|now apply Nat.eqb_eq]. }
    apply (in_map snd), in_split in Hf. destruct Hf as (l1 & l2 & E). rewrite E, list_sum_app. simpl. lia.
  Qed.

  Let on_rail (n : nat) : nat :=
    list_sum (map snd (filter (fun z => (fst (key (fst (fst z))) =? v) && (snd (fst z) =? n)) Z)).

  (** a rail's bytes, block by block *)
  Lemma by_blocks Q n : (forall z, In z Z -> snd (key (fst (fst z))) < Q) -> on_rail n = sum Q (fun q => from q n).
  Proof.
    unfold on_rail, from. clear. induction Z as [|z l IH]; intros H; [now rewrite sum_0|].
    specialize (IH (fun y Hy => H y (or_intror Hy))). specialize (H z (or_introl eq_refl)).
    destruct (key (fst (fst z))) as [k q] eqn:K.
    rewrite (sum_ext Q _ (fun i => (if i =? q then (if (k =? v) && (snd (fst z) =? n) then snd z else 0) else 0)
      + list_sum (map snd (filter (fun z => eqb eqP (key (fst (fst z))) (v, i) && (snd (fst z) =? n)) l)))).
    - rewrite sum_add, <- IH. cbn [filter]. rewrite K. cbn [fst snd] in *.
      rewrite (sum_pick Q q (fun _ => if (k =? v) && (snd (fst z) =? n) then snd z else 0)) by exact H.
      destruct ((k =? v) && (snd (fst z) =? n)); reflexivity.
    - intros i _. cbn [filter]. rewrite K, eqbP, (Nat.eqb_sym q i).
      destruct (k =? v), (i =? q), (snd (fst z) =? n); reflexivity.
  Qed.

  Lemma rails_close n n' : n < N -> n' < N -> on_rail n <= on_rail n' + pmax.
  Proof.
    intros Hn Hn'.
    set (Q := S (list_max (map (fun z => snd (key (fst (fst z)))) Z))).
    assert (HQ : forall z, In z Z -> snd (key (fst (fst z))) < Q).
    { intros z Hz. unfold Q. apply Nat.lt_succ_r.
      assert (A : Forall (fun q => q <= list_max (map (fun z => snd (key (fst (fst z)))) Z)) (map (fun z => snd (key (fst (fst z)))) Z))
        by (now apply list_max_le).
      rewrite Forall_forall in A. apply A. now apply (in_map (fun z => snd (key (fst (fst z))))). }
    rewrite !(by_blocks Q) by exact HQ. unfold Q. clear HQ Q.
    generalize (list_max (map (fun z => snd (key (fst (fst z)))) Z)) as m. intros m.
    assert (First : from 0 n <= pmax).
    { destruct (at_most_one 0 n) as [->|(z & Hz & _ & _ & ->)]; [lia|].
      rewrite Forall_forall in Small. apply Small. unfold Z in Hz. destruct z as [g p]. exact (in_combine_r _ _ _ _ Hz). }
    assert (Shift : forall g, sum (S m) g = g 0 + sum m (fun q => g (q + 1))).
    { intros g. induction m as [|m' IH]; [simpl; lia|]. cbn [sum] in *. rewrite IH. rewrite Nat.add_1_r. lia. }
    rewrite Shift. assert (A : sum m (fun q => from (q + 1) n) <= sum m (fun q => from q n')).
    { apply sum_le. intros q _. now apply next_block. }
    cbn [sum]. lia.
  Qed.
End Side.

(** ** The theorem *)

Lemma sorted_exists (cs : list (edge * nat)) : exists cs', Permutation cs cs' /\ StronglySorted le (map snd cs').
Proof.
  induction cs as [|c cs (cs' & P & S)]; [exists []; split; constructor|].
  assert (I : exists l, Permutation (c :: cs') l /\ StronglySorted le (map snd l)).
  { clear P. induction cs' as [|d cs' IH]; [exists [c]; split; [reflexivity|repeat constructor]|].
    cbn [map] in S. inversion_clear S as [|? ? S' F]. destruct (le_lt_dec (snd c) (snd d)) as [H|H].
    - exists (c :: d :: cs'). split; [reflexivity|]. cbn [map]. repeat constructor; auto.
      eapply Forall_impl; [|exact F]. intros a Ha. lia.
    - destruct (IH S') as (l & P & Sl). exists (d :: l). split; [rewrite perm_swap; now constructor|].
      cbn [map]. constructor; auto. apply (Permutation_Forall (x := map snd (c :: cs'))); [now apply Permutation_map|].
      cbn [map]. constructor; [lia|exact F]. }
  destruct I as (l & Pl & Sl). exists l. split; [|exact Sl]. rewrite <- Pl. now constructor.
Qed.

Lemma carried_blocks (ends : edge -> nat) (key : copies -> nat * nat) N v n :
  (forall e E, map key (splitE N (e :: E)) = (ends e, dg ends E (ends e) / N) :: map key (splitE N E)) ->
  forall cs (G : list (copies * nat)), map fst G = splitE N (map fst cs) ->
  carried ends (combine cs (map snd G)) v n =
  list_sum (map snd (filter (fun z => (fst (key (fst (fst z))) =? v) && (snd (fst z) =? n)) (combine G (map snd cs)))).
Proof.
  intros K. unfold carried. induction cs as [|[e p] cs IH]; intros [|[g c] G] E; try discriminate; [reflexivity|].
  pose proof (K e (map fst cs)) as Ke. cbn [map fst snd] in *.
  assert (Et : map fst G = splitE N (map fst cs)) by (cbn [splitE] in E; now injection E).
  assert (Kg : fst (key g) = ends e).
  { rewrite <- E in Ke. cbn [map] in Ke. injection Ke as Ke _. now rewrite Ke. }
  specialize (IH G Et). cbn [combine map filter fst snd] in *. rewrite Kg.
  destruct ((ends e =? v) && (c =? n)); cbn [map list_sum fold_right fst snd]; [|exact IH].
  unfold list_sum in *. now rewrite IH.
Qed.

Theorem T8_sized : forall N (cs : list (edge * nat)) pmax, 1 <= N -> Forall (fun c => snd c <= pmax) cs ->
  exists H : list placed_chunk, Permutation (map fst H) cs /\ Forall (fun z => snd z < N) H /\
  forall v n n', n < N -> n' < N ->
    carried fst H v n <= carried fst H v n' + pmax /\ carried snd H v n <= carried snd H v n' + pmax.
Proof.
  intros N cs0 pmax HN Small0. destruct (sorted_exists cs0) as (cs & P & S).
  assert (Small : Forall (fun p => p <= pmax) (map snd cs)).
  { apply Forall_map. eapply Permutation_Forall; [exact P|exact Small0]. }
  destruct (Koenig eqP N (splitE N (map fst cs))) as (G & EG & [PU PV] & FG).
  { intros [k q]. rewrite (proj1 (split_deg N (map fst cs) k q HN)). lia. }
  { intros [k q]. rewrite (proj2 (split_deg N (map fst cs) k q HN)). lia. }
  assert (L : length (map snd G) = length cs).
  { assert (Ls : forall E, length (splitE N E) = length E) by (induction E; simpl; auto).
    rewrite map_length, <- (map_length fst G), EG, Ls. apply map_length. }
  exists (combine cs (map snd G)). split; [|split].
  - assert (E : map fst (combine cs (map snd G)) = cs).
    { clear - L. revert L. generalize (map snd G) as l. induction cs as [|c cs IH]; intros [|a l] L; simpl in *; try discriminate; auto.
      f_equal. apply IH. lia. }
    rewrite E. now symmetry.
  - apply Forall_forall. intros [c a] Hin. apply in_combine_r, in_map_iff in Hin. destruct Hin as (g & <- & Hg).
    rewrite Forall_forall in FG. exact (FG g Hg).
  - intros v n n' Hn Hn'. split.
    + rewrite !(carried_blocks fst fst N v _ ltac:(reflexivity) cs G EG).
      apply (rails_close fst fst N HN ltac:(reflexivity) cs G pmax v EG S PU FG Small); auto.
      intros q. exact (proj1 (split_deg N (map fst cs) v q HN)).
    + rewrite !(carried_blocks snd snd N v _ ltac:(reflexivity) cs G EG).
      apply (rails_close snd snd N HN ltac:(reflexivity) cs G pmax v EG S PV FG Small); auto.
      intros q. exact (proj2 (split_deg N (map fst cs) v q HN)).
Qed.

(** ** Against the average: list scheduling's guarantee on both sides at once (T4 for any sizes, any M) *)
Definition bytes_of (ends : edge -> nat) (cs : list (edge * nat)) (v : nat) : nat :=
  list_sum (map snd (filter (fun c => ends (fst c) =? v) cs)).

Lemma bytes_perm ends cs cs' v : Permutation cs cs' -> bytes_of ends cs v = bytes_of ends cs' v.
Proof.
  unfold bytes_of. induction 1; simpl; repeat match goal with |- context [if ?b then _ else _] => destruct b end; simpl; lia.
Qed.

Lemma carried_total ends N H v : Forall (fun z => snd z < N) H ->
  sum N (fun n => carried ends H v n) = bytes_of ends (map fst H) v.
Proof.
  unfold carried, bytes_of. induction 1 as [|z H Hz F IH]; [now rewrite sum_0|].
  rewrite (sum_ext N _ (fun n => (if n =? snd z then (if ends (fst (fst z)) =? v then snd (fst z) else 0) else 0)
    + list_sum (map (fun z => snd (fst z)) (filter (fun z => (ends (fst (fst z)) =? v) && (snd z =? n)) H)))).
  - rewrite sum_add, IH, (sum_pick N (snd z) (fun _ => if ends (fst (fst z)) =? v then snd (fst z) else 0)) by exact Hz.
    cbn [map filter]. destruct (ends (fst (fst z)) =? v); reflexivity.
  - intros n _. cbn [filter]. rewrite (Nat.eqb_sym (snd z) n).
    destruct (ends (fst (fst z)) =? v), (n =? snd z); reflexivity.
Qed.

Lemma close_average N g pmax n : n < N -> (forall i, i < N -> g n <= g i + pmax) -> N * g n <= sum N g + (N - 1) * pmax.
Proof.
  intros Hn H.
  assert (A : sum N (fun _ => g n) <= sum N (fun i => g i + (if i =? n then 0 else pmax))).
  { apply sum_le. intros i Hi. destruct (Nat.eqb_spec i n) as [->|]; [lia|]. now apply H. }
  rewrite sum_const, sum_add in A.
  assert (B : sum N (fun i => if i =? n then 0 else pmax) + pmax = N * pmax).
  { rewrite <- (sum_const N pmax), <- (sum_pick N n (fun _ => pmax) Hn) at 1. rewrite <- sum_add. apply sum_ext.
    intros i _. destruct (i =? n); lia. }
  destruct N; [lia|]. simpl Nat.sub. rewrite Nat.sub_0_r. lia.
Qed.

Theorem T4_sized : forall N (cs : list (edge * nat)) pmax, 1 <= N -> Forall (fun c => snd c <= pmax) cs ->
  exists H : list placed_chunk, Permutation (map fst H) cs /\ Forall (fun z => snd z < N) H /\
  forall v n, n < N ->
    N * carried fst H v n <= bytes_of fst cs v + (N - 1) * pmax /\
    N * carried snd H v n <= bytes_of snd cs v + (N - 1) * pmax.
Proof.
  intros N cs pmax HN Small. destruct (T8_sized N cs pmax HN Small) as (H & P & F & C).
  exists H. split; [exact P|]. split; [exact F|]. intros v n Hn.
  rewrite <- !(bytes_perm _ _ _ v P), <- !(carried_total _ N H v F).
  split; (apply close_average; [exact Hn|]); intros i Hi; apply C; auto.
Qed.
