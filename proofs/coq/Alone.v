(** * T18: what nodes can do that know their own row only

    A _rule_ sees a node and what it sends, [rule k r f n] with [r f] unit chunks for node [f],
    and nothing of the other nodes.  No rule guarantees much (T18): whatever it does, some senders,
    of which it does not know who they are, meet on one rail of their destination.  Chunks dealt in
    turn from rail (k + f) mod N keep a bound of their own (T18c), and r senders per class of rails attain T18 where r + 1
    divides N (T18b). *)
From Coq Require Import Arith Lia List Bool.
From Rails Require Import Sums Model.

Definition places (M N : nat) (rule : nat -> (nat -> nat) -> nat -> nat -> nat) : Prop :=
  forall k r f, k < M -> f < M -> sum N (fun n => rule k r f n) = r f.

(** the plan that all nodes make, each from its row *)
Definition alone (rule : nat -> (nat -> nat) -> nat -> nat -> nat) (D : nat -> nat -> nat) :
  nat -> nat -> nat -> nat := fun k f n => rule k (D k) f n.

(** no NIC of a plan carries more than [T] *)
Definition within (M N : nat) (x : nat -> nat -> nat -> nat) (T : nat) : Prop :=
  forall k n, k < M -> n < N -> Snd M x k n <= T /\ Rcv M x k n <= T.

(** ** The lower bound: pigeons that do not see each other *)

(** among numbers of sum at least v, at most v of them have a sum of at least v *)
Lemma few_suffice s : forall v g, v <= sum s g ->
  exists on, count s on <= v /\ v <= sum s (fun k => if on k then g k else 0).
Proof.
  induction s as [|s IH]; intros v g H; simpl in H.
  - exists (fun _ => false). unfold count. simpl. split; lia.
  - destruct (g s) as [|c] eqn:E.
    + destruct (IH v g ltac:(lia)) as (on & C & V). exists (fun k => on k && negb (k =? s)).
      unfold count in *. cbn [sum]. rewrite Nat.eqb_refl, andb_false_r. split.
      * rewrite (sum_ext s _ (fun i => if on i then 1 else 0)); [lia|].
        intros i Hi. destruct (Nat.eqb_spec i s); [lia|]. now rewrite andb_true_r.
      * rewrite (sum_ext s _ (fun i => if on i then g i else 0)); [lia|].
        intros i Hi. destruct (Nat.eqb_spec i s); [lia|]. now rewrite andb_true_r.
    + destruct v as [|v]; [exists (fun _ => false); unfold count; rewrite sum_0 by auto; split; lia|].
      destruct (IH (S v - S c) g ltac:(lia)) as (on & C & V). exists (fun k => on k || (k =? s)).
      unfold count in *. cbn [sum]. rewrite Nat.eqb_refl, orb_true_r. split.
      * rewrite (sum_ext s _ (fun i => if on i then 1 else 0)); [lia|].
        intros i Hi. destruct (Nat.eqb_spec i s); [lia|]. now rewrite orb_false_r.
      * rewrite (sum_ext s _ (fun i => if on i then g i else 0)); [lia|].
        intros i Hi. destruct (Nat.eqb_spec i s); [lia|]. now rewrite orb_false_r.
Qed.

Lemma sum_interval N c b : sum N (fun n => if (c <=? n) && (n <? c + b) then 1 else 0) = min N (c + b) - min N c.
Proof.
  induction N as [|N IH]; [reflexivity|]. cbn [sum]. rewrite IH.
  destruct (Nat.leb_spec c N), (Nat.ltb_spec N (c + b)); cbn [andb]; lia.
Qed.

(** node [s] receives; of the others those that are [on] send it b unit chunks each *)
Definition to_last (s b f : nat) : nat := if f =? s then b else 0.
Definition bunch (s b : nat) (on : nat -> bool) (k : nat) : nat -> nat :=
  if on k && (k <? s) then to_last s b else fun _ => 0.
(** and each takes the next b rails *)
Definition apart (s b : nat) (on : nat -> bool) (k f n : nat) : nat :=
  if on k && (k <? s) && (f =? s) && ((b * count k on <=? n) && (n <? b * count k on + b)) then 1 else 0.

Lemma count_mono m n on : m <= n -> count m on <= count n on.
Proof. induction 1; unfold count in *; simpl; lia. Qed.

Lemma count_on k s on : k < s -> on k = true -> S (count k on) <= count s on.
Proof.
  intros H O. transitivity (count (S k) on); [|now apply count_mono].
  unfold count. simpl. rewrite O. lia.
Qed.

Lemma apart_feasible N s b on : b * count s on <= N -> feasible (S s) N (bunch s b on) (apart s b on).
Proof.
  intros H k f Hk Hf. unfold apart, bunch.
  destruct (on k) eqn:O, (Nat.ltb_spec k s); cbn [andb]; try (now apply sum_0).
  unfold to_last. destruct (Nat.eqb_spec f s); cbn [andb]; [|now apply sum_0].
  rewrite sum_interval. pose proof (count_on k s on ltac:(lia) O). nia.
Qed.

Lemma apart_before s b on n j : j <= s ->
  sum j (fun k => apart s b on k s n) = if n <? b * count j on then 1 else 0.
Proof.
  induction j as [|j IH]; intros H.
  - simpl. unfold count. simpl. rewrite Nat.mul_0_r. now destruct (n <? 0) eqn:E; [apply Nat.ltb_lt in E; lia|].
  - cbn [sum]. rewrite IH by lia. unfold apart. rewrite Nat.eqb_refl.
    destruct (Nat.ltb_spec j s); [|lia]. unfold count. cbn [sum]. fold (count j on).
    destruct (on j); cbn [andb];
      repeat match goal with |- context [?a <=? ?b] => destruct (Nat.leb_spec a b)
      | |- context [?a <? ?b] => destruct (Nat.ltb_spec a b) end; cbn [andb]; nia.
Qed.

Lemma apart_within N s b on : within (S s) N (apart s b on) 1.
Proof.
  intros k n Hk Hn. unfold Snd, Rcv. split.
  - transitivity (sum (S s) (fun f => if f =? s then 1 else 0)).
    + apply sum_le. intros f _. unfold apart. destruct (f =? s); rewrite ?andb_true_r, ?andb_false_r; [|easy].
      destruct (_ && _); lia.
    + rewrite sum_ind. destruct (s <? S s); lia.
  - destruct (Nat.eq_dec k s) as [->|E].
    + cbn [sum]. rewrite (apart_before s b on n s) by lia. unfold apart at 1. rewrite Nat.ltb_irrefl, andb_false_r.
      cbn [andb]. destruct (n <? _); lia.
    + rewrite sum_0; [lia|]. intros i _. unfold apart. destruct (Nat.eqb_spec k s); [easy|].
      now rewrite andb_false_r.
Qed.

(** Whatever the rule: with v b <= N and N (v - 1) < s b, it makes some rail receive v unit chunks
    of traffic that another plan carries with one chunk per NIC. *)
Theorem T18_alone : forall N s b v rule, places (S s) N rule -> 1 <= v -> v * b <= N -> N * (v - 1) < s * b ->
  exists D, (forall k, D k k = 0) /\
    (exists y, feasible (S s) N D y /\ within (S s) N y 1) /\
    exists n, n < N /\ v <= Rcv (S s) (alone rule D) s n.
Proof.
  intros N s b v rule P Hv Hb Hs.
  set (g := fun n k => rule k (to_last s b) s n).
  assert (A : sum N (fun n => sum s (g n)) = s * b).
  { rewrite <- sum_swap, <- sum_const. apply sum_ext. intros k Hk. unfold g.
    rewrite (P k (to_last s b) s) by lia. unfold to_last. now rewrite Nat.eqb_refl. }
  rewrite <- A in Hs. apply sum_pigeon in Hs. destruct Hs as (n & Hn & Hs).
  destruct (few_suffice s v (g n) ltac:(lia)) as (on & C & V).
  exists (bunch s b on). split; [|split].
  - intros k. unfold bunch, to_last. destruct (on k), (Nat.ltb_spec k s); cbn [andb]; auto.
    destruct (Nat.eqb_spec k s); [lia|auto].
  - exists (apart s b on). split; [apply apart_feasible; nia|apply apart_within].
  - exists n. split; [auto|]. etransitivity; [exact V|]. unfold Rcv. cbn [sum].
    transitivity (sum s (fun k => alone rule (bunch s b on) k s n)); [|lia].
    apply sum_le. intros k Hk. unfold alone, bunch, g.
    destruct (Nat.ltb_spec k s); [|lia]. destruct (on k); cbn [andb]; lia.
Qed.

(** ** With many nodes a rule guarantees nothing: factor N, which is that of every plan *)
Lemma line_sums M N D y T : feasible M N D y -> within M N y T ->
  forall k, k < M -> row M D k <= N * T /\ col M D k <= N * T.
Proof.
  intros Y W k Hk. split.
  - transitivity (sum N (fun n => Snd M y k n)); [|apply sum_le_const; intros i Hi; now apply (W k i)].
    unfold Snd, row. rewrite <- sum_swap. apply Nat.eq_le_incl, sum_ext. intros f Hf. symmetry. now apply Y.
  - transitivity (sum N (fun n => Rcv M y k n)); [|apply sum_le_const; intros i Hi; now apply (W k i)].
    unfold Rcv, col. rewrite <- sum_swap. apply Nat.eq_le_incl, sum_ext. intros f Hf. symmetry. now apply Y.
Qed.

Theorem T18_any_plan : forall M N D x y T, feasible M N D x -> feasible M N D y -> within M N y T ->
  within M N x (N * T).
Proof.
  intros M N D x y T X Y W k n Hk Hn. destruct (line_sums M N D y T Y W k Hk) as [R C]. split.
  - etransitivity; [|exact R]. apply sum_le. intros f Hf. exact (x_le_D M N D x X k f n Hk Hf Hn).
  - etransitivity; [|exact C]. apply sum_le. intros f Hf. exact (x_le_D M N D x X f k n Hf Hk Hn).
Qed.

Theorem T18_factor_N : forall N s rule, 1 <= N -> places (S s) N rule -> N * (N - 1) < s ->
  exists D, (forall k, D k k = 0) /\
    (exists y, feasible (S s) N D y /\ within (S s) N y 1) /\
    exists n, n < N /\ N <= Rcv (S s) (alone rule D) s n.
Proof. intros N s rule HN P H. apply (T18_alone N s 1 N rule P); lia. Qed.

(** ** In turn from rail (k + f) mod N *)
Definition turn (N k f j : nat) : nat := (k + f + j) mod N.

(** the chunks of each pair, [p k f 0] the largest, go in turn over the rails, L rounds *)
Definition dealt (M N L : nat) (p : nat -> nat -> nat -> nat) (x : nat -> nat -> nat -> nat) : Prop :=
  forall k f j, k < M -> f < M -> j < N -> x k f (turn N k f j) = sum L (fun i => p k f (j + i * N)).
Definition descending (p : nat -> nat -> nat -> nat) : Prop :=
  forall k f i j, i <= j -> p k f j <= p k f i.

Lemma sum_shift N a g : 1 <= N -> sum N (fun j => g ((a + j) mod N)) = sum N g.
Proof.
  intros HN. assert (Step : forall h m, sum m (fun j => h (S j)) + h 0 = sum m h + h m).
  { intros h m. induction m as [|m IH]; simpl; lia. }
  induction a as [|a IH].
  - apply sum_ext. intros j Hj. now rewrite Nat.mod_small.
  - rewrite <- IH. pose proof (Step (fun j => g ((a + j) mod N)) N) as E. cbn beta in E.
    replace ((a + N) mod N) with ((a + 0) mod N) in E by
      (replace (a + N) with (a + 0 + 1 * N) by lia; now rewrite Nat.mod_add by lia).
    rewrite (sum_ext N (fun j => g ((S a + j) mod N)) (fun j => g ((a + S j) mod N))); [lia|].
    intros j _. f_equal. f_equal. lia.
Qed.

Lemma turn_reaches N k f n : n < N -> exists j, j < N /\ turn N k f j = n.
Proof.
  intros H. pose proof (Nat.mod_upper_bound (k + f) N ltac:(lia)) as B.
  exists ((n + (N - (k + f) mod N)) mod N). split; [apply Nat.mod_upper_bound; lia|].
  unfold turn. rewrite Nat.add_mod_idemp_r by lia. pose proof (Nat.div_mod_eq (k + f) N) as E.
  replace (k + f + (n + (N - (k + f) mod N))) with (n + ((k + f) / N + 1) * N) by nia.
  rewrite Nat.mod_add by lia. now apply Nat.mod_small.
Qed.

Lemma count_once n P : (forall i j, i < n -> j < n -> P i = true -> P j = true -> i = j) -> count n P <= 1.
Proof.
  unfold count. induction n as [|n IH]; intros H; simpl; [lia|].
  assert (I : sum n (fun i => if P i then 1 else 0) <= 1) by (apply IH; intros; apply H; auto; lia).
  destruct (P n) eqn:E; [|lia]. rewrite sum_0; [lia|].
  intros i Hi. destruct (P i) eqn:F; [|auto]. pose proof (H i n ltac:(lia) ltac:(lia) F E). lia.
Qed.

Lemma sum_split m n g : sum (m + n) g = sum m g + sum n (fun i => g (m + i)).
Proof. induction n as [|n IH]; rewrite ?Nat.add_0_r; simpl; [lia|]. rewrite Nat.add_succ_r. simpl. lia. Qed.

Lemma sum_longer m n g : m <= n -> sum m g <= sum n g.
Proof. induction 1; simpl; lia. Qed.

(** of c N nodes no more than c meet at a rail at their j-th turn *)
Lemma starts_spread N c f j n : 1 <= N -> count (c * N) (fun k => turn N k f j =? n) <= c.
Proof.
  intros HN. induction c as [|c IH]; [unfold count; simpl; lia|].
  replace (S c * N) with (c * N + N) by lia. unfold count in *. rewrite sum_split.
  assert (O : sum N (fun i => if turn N (c * N + i) f j =? n then 1 else 0) <= 1); [|lia].
  apply (count_once N (fun i => turn N (c * N + i) f j =? n)). intros a b Ha Hb A B.
  apply Nat.eqb_eq in A, B. unfold turn in A, B.
  pose proof (Nat.div_mod_eq (c * N + a + f + j) N) as EA. pose proof (Nat.div_mod_eq (c * N + b + f + j) N) as EB.
  rewrite A in EA. rewrite B in EB. set (u := (c * N + a + f + j) / N) in *. set (w := (c * N + b + f + j) / N) in *.
  destruct (lt_eq_lt_dec u w) as [[H|H]|H]; nia.
Qed.

(** what one pair puts on a rail: a chunk more than a (J+1)-th of its bytes at the first J turns, no more than that later *)
Lemma dealt_pair M N L D p x q J k f n : feasible M N D x -> dealt M N L p x -> descending p ->
  (forall i j l, p i j l <= q) -> J < N -> k < M -> f < M -> n < N ->
  S J * x k f n <= D k f + S J * (q * count J (fun j => turn N k f j =? n)).
Proof.
  intros F Dl De Q HJ Hk Hf Hn.
  set (z := fun j => sum L (fun i => p k f (j + i * N))).
  assert (Z : forall j, j < N -> x k f (turn N k f j) = z j) by (intros; now apply Dl).
  assert (Mono : forall i j, i <= j -> z j <= z i) by (intros i j H; apply sum_le; intros l _; apply De; lia).
  assert (All : sum N z = D k f).
  { rewrite <- (F k f Hk Hf). rewrite <- (sum_shift N (k + f) (fun n => x k f n)) by lia.
    apply sum_ext. intros j Hj. symmetry. now apply Z. }
  assert (Mean : forall j, J <= j -> S J * z j <= D k f).
  { intros j Hj. rewrite <- All. transitivity (sum (S J) z).
    - apply sum_ge_const. intros i Hi. apply Mono. lia.
    - apply sum_longer. lia. }
  assert (First : z 0 <= q + z (N - 1)).
  { assert (G : forall l, sum l (fun i => p k f (0 + i * N)) <= q + sum l (fun i => p k f (N - 1 + i * N))).
    { assert (G : forall l, sum (S l) (fun i => p k f (0 + i * N)) <= q + sum l (fun i => p k f (N - 1 + i * N))).
      { induction l as [|l IH]; [simpl; specialize (Q k f 0); lia|]. cbn [sum] in *.
        assert (p k f (0 + S l * N) <= p k f (N - 1 + l * N)) by (apply De; lia). lia. }
      intros l. specialize (G l). cbn [sum] in G. lia. }
    apply G. }
  destruct (turn_reaches N k f n Hn) as (j & Hj & E). rewrite <- E at 1. rewrite Z by auto.
  destruct (le_lt_dec J j) as [Hl|Hl].
  - specialize (Mean j Hl). lia.
  - assert (1 <= count J (fun j => turn N k f j =? n)).
    { unfold count. pose proof (sum_single J (fun j => if turn N k f j =? n then 1 else 0) j Hl) as S1.
      cbn beta in S1. rewrite E, Nat.eqb_refl in S1. exact S1. }
    specialize (Mean (N - 1) ltac:(lia)). pose proof (Mono 0 j ltac:(lia)).
    set (m := count J _) in *. assert (z j <= z (N - 1) + q * m) by nia. nia.
Qed.

Lemma dealt_line M c J (load D : nat -> nat) q (r : nat -> nat -> nat) n :
  (forall k, k < M -> S J * load k <= D k + S J * (q * count J (fun j => r k j =? n))) ->
  (forall j, j < J -> count M (fun k => r k j =? n) <= c) ->
  S J * sum M load <= sum M D + S J * (J * c * q).
Proof.
  intros H C. rewrite sum_mul. transitivity (sum M (fun k => D k + S J * (q * count J (fun j => r k j =? n)))).
  - now apply sum_le.
  - rewrite sum_add. apply Nat.add_le_mono_l. rewrite <- !sum_mul. apply Nat.mul_le_mono_l.
    unfold count at 1. rewrite (sum_swap M J (fun k j => if r k j =? n then 1 else 0)).
    assert (sum J (fun j => sum M (fun k => if r k j =? n then 1 else 0)) <= J * c) by (now apply sum_le_const). nia.
Qed.

(** Chunks of any sizes up to q, of each pair the largest first, in turn from rail (k + f) mod N, M <= c N:
    for every J < N, no NIC has more than a (J+1)-th of its node's bytes and J c chunks. *)
Theorem T18_turns : forall M N L c D p x q J, feasible M N D x -> dealt M N L p x -> descending p ->
  (forall k f i, p k f i <= q) -> M <= c * N -> J < N ->
  forall f n, f < M -> n < N ->
    S J * Rcv M x f n <= col M D f + S J * (J * c * q) /\
    S J * Snd M x f n <= row M D f + S J * (J * c * q).
Proof.
  intros M N L c D p x q J F Dl De Q HM HJ f n Hf Hn.
  assert (St : forall g j, count M (fun k => turn N k g j =? n) <= c).
  { intros g j. etransitivity; [apply (count_mono M (c * N)); exact HM|]. apply starts_spread. lia. }
  split.
  - apply (dealt_line M c J (fun k => x k f n) (fun k => D k f) q (fun k j => turn N k f j) n).
    + intros k Hk. now apply (dealt_pair M N L D p x q J k f n).
    + intros j _. apply St.
  - apply (dealt_line M c J (fun k => x f k n) (fun k => D f k) q (fun k j => turn N f k j) n).
    + intros k Hk. now apply (dealt_pair M N L D p x q J f k n).
    + intros j _. etransitivity; [|apply (St f j)]. apply Nat.eq_le_incl, sum_ext. intros k _.
      unfold turn. now rewrite (Nat.add_comm f k).
Qed.

(** hence a factor of N / (J+1) + J c to any plan, for every J < N *)
Theorem T18_ratio : forall M N L c D p x y q J T, feasible M N D x -> dealt M N L p x -> descending p ->
  (forall k f i, p k f i <= q) -> M <= c * N -> J < N -> feasible M N D y -> within M N y T -> q <= T ->
  within M N (fun k f n => S J * x k f n) ((N + S J * (J * c)) * T).
Proof.
  intros M N L c D p x y q J T F Dl De Q HM HJ Y W HT k n Hk Hn.
  destruct (T18_turns M N L c D p x q J F Dl De Q HM HJ k n Hk Hn) as [R Sn].
  destruct (line_sums M N D y T Y W k Hk) as [O C].
  assert (B : S J * (J * c * q) <= S J * (J * c) * T).
  { rewrite <- (Nat.mul_assoc (S J)). now apply Nat.mul_le_mono_l, Nat.mul_le_mono_l. }
  unfold Snd, Rcv in *. rewrite <- !sum_mul, Nat.mul_add_distr_r. split; lia.
Qed.

(** ** Three nodes: from both ends *)

(** chunks for the next node go in turn from the first rail upwards, those for the one before from the last downwards *)
Definition both_ends (N : nat) (D : nat -> nat -> nat) (k f n : nat) : nat :=
  if f =? S k mod 3 then (D k f + (N - 1 - n)) / N else (D k f + n) / N.

Lemma hermite N d : 1 <= N -> sum N (fun n => (d + n) / N) = d.
Proof.
  intros HN. assert (Step : forall h m, sum m (fun j => h (S j)) + h 0 = sum m h + h m).
  { intros h m. induction m as [|m IH]; simpl; lia. }
  induction d as [|d IH].
  - apply sum_0. intros i Hi. now apply Nat.div_small.
  - pose proof (Step (fun j => (d + j) / N) N) as E. cbn beta in E. rewrite IH, Nat.add_0_r in E.
    replace (d + N) with (d + 1 * N) in E by lia. rewrite Nat.div_add in E by lia.
    rewrite (sum_ext N (fun n => (S d + n) / N) (fun j => (d + S j) / N)); [lia|].
    intros j _. f_equal. lia.
Qed.

Lemma sum_reverse N : forall g, sum N (fun n => g (N - 1 - n)) = sum N g.
Proof.
  induction N as [|N IH]; intros g; [reflexivity|]. cbn [sum].
  rewrite (sum_ext N (fun n => g (S N - 1 - n)) (fun n => g (S (N - 1 - n)))) by (intros; f_equal; lia).
  rewrite (IH (fun n => g (S n))). replace (S N - 1 - N) with 0 by lia. clear IH.
  induction N as [|N IH]; simpl; lia.
Qed.

Lemma floors N a b : 1 <= N -> a / N + b / N <= (a + b) / N.
Proof.
  intros HN. apply Nat.div_le_lower_bound; [lia|].
  pose proof (Nat.mul_div_le a N ltac:(lia)). pose proof (Nat.mul_div_le b N ltac:(lia)). nia.
Qed.

(** Unit chunks between three nodes: each from its row, all NICs within what every plan needs *)
Theorem T18_three : forall N D, 1 <= N -> (forall k, D k k = 0) ->
  feasible 3 N D (both_ends N D) /\
  forall k n, k < 3 -> n < N ->
    Snd 3 (both_ends N D) k n <= (row 3 D k + (N - 1)) / N /\
    Rcv 3 (both_ends N D) k n <= (col 3 D k + (N - 1)) / N.
Proof.
  intros N D HN Z. split.
  - intros k f Hk Hf. unfold both_ends. destruct (f =? S k mod 3); [|now apply hermite].
    rewrite (sum_reverse N (fun n => (D k f + n) / N)). now apply hermite.
  - intros k n Hk Hn.
    assert (E : forall a b, (a + (N - 1 - n)) / N + (b + n) / N <= (a + b + (N - 1)) / N).
    { intros a b. etransitivity; [apply floors; lia|]. apply Nat.div_le_mono; lia. }
    assert (O : (0 + n) / N = 0) by (now apply Nat.div_small).
    pose proof (Z 0) as Z0. pose proof (Z 1) as Z1. pose proof (Z 2) as Z2.
    unfold Snd, Rcv, row, col, both_ends. cbn [sum].
    destruct k as [|[|[|k]]]; [..|lia]; cbn; rewrite ?Z0, ?Z1, ?Z2, ?O, ?Nat.add_0_r.
    + split; [apply E|]. rewrite Nat.add_comm. etransitivity; [apply E|]. apply Nat.div_le_mono; lia.
    + split; [rewrite Nat.add_comm; etransitivity; [apply E|]; apply Nat.div_le_mono; lia|].
      apply E.
    + split; [apply E|]. rewrite Nat.add_comm. etransitivity; [apply E|]. apply Nat.div_le_mono; lia.
Qed.

(** ** A word to all senders: with few words, some two senders always take the same rail *)

(** the highest rail in use *)
Fixpoint used (N : nat) (g : nat -> nat) : nat :=
  match N with 0 => 0 | S m => if g m =? 0 then used m g else m end.

Lemma used_is N g : 1 <= sum N g -> used N g < N /\ 1 <= g (used N g).
Proof.
  induction N as [|N IH]; simpl; intros H; [lia|].
  destruct (Nat.eqb_spec (g N) 0) as [E|E]; [|lia]. destruct IH; lia.
Qed.

(** what a sender does at each of Q words, as one number below N^Q *)
Fixpoint code (N Q : nat) (colour : nat -> nat) : nat :=
  match Q with 0 => 0 | S h => code N h colour * N + colour h end.

Lemma code_below N Q colour : (forall h, h < Q -> colour h < N) -> code N Q colour < N ^ Q.
Proof.
  induction Q as [|Q IH]; intros H; simpl; [lia|].
  pose proof (IH ltac:(intros; apply H; lia)). pose proof (H Q ltac:(lia)). nia.
Qed.

Lemma code_inj N Q c d : (forall h, h < Q -> c h < N) -> (forall h, h < Q -> d h < N) ->
  code N Q c = code N Q d -> forall h, h < Q -> c h = d h.
Proof.
  induction Q as [|Q IH]; intros C D E h Hh; [lia|]. simpl in E.
  pose proof (C Q ltac:(lia)). pose proof (D Q ltac:(lia)).
  assert (code N Q c = code N Q d) by nia.
  destruct (Nat.eq_dec h Q) as [->|]; [nia|]. apply IH; [intros; apply C; lia|intros; apply D; lia|auto|lia].
Qed.

Lemma two_alike s B g : B < s -> (forall k, k < s -> g k < B) -> exists k l, k < l /\ l < s /\ g k = g l.
Proof.
  revert B g. induction s as [|s IH]; intros B g HB H; [lia|].
  assert (Dec : forall m, m <= s -> (exists k, k < m /\ g k = g s) \/ forall k, k < m -> g k <> g s).
  { induction m as [|m IHm]; intros Hm; [right; lia|].
    destruct (IHm ltac:(lia)) as [(k & Hk & E)|No]; [left; exists k; split; [lia|auto]|].
    destruct (Nat.eq_dec (g m) (g s)) as [E|E]; [left; exists m; split; [lia|auto]|].
    right. intros k Hk. destruct (Nat.eq_dec k m) as [->|]; [auto|apply No; lia]. }
  destruct (Dec s ltac:(lia)) as [(k & Hk & E)|No]; [exists k, s; split; [auto|split; [lia|auto]]|].
  destruct (IH (B - 1) (fun k => if g k <? g s then g k else g k - 1)) as (k & l & Hk & Hl & E).
  - pose proof (H s ltac:(lia)). lia.
  - intros k Hk. pose proof (H k ltac:(lia)). pose proof (H s ltac:(lia)). pose proof (No k Hk).
    destruct (Nat.ltb_spec (g k) (g s)); lia.
  - exists k, l. split; [auto|]. split; [lia|]. pose proof (No k ltac:(lia)). pose proof (No l ltac:(lia)).
    destruct (Nat.ltb_spec (g k) (g s)), (Nat.ltb_spec (g l) (g s)); lia.
Qed.

(** One of Q words, told to all senders of a node: with more than N^Q possible senders there are two whose
    unit chunks meet on a rail, whatever the word, although N >= 2 rails have room for both. *)
Theorem T18_announced : forall N Q s rule, 2 <= N -> (forall h, h < Q -> places (S s) N (rule h)) -> N ^ Q < s ->
  exists D, (forall k, D k k = 0) /\
    (exists y, feasible (S s) N D y /\ within (S s) N y 1) /\
    forall h, h < Q -> exists n, n < N /\ 2 <= Rcv (S s) (alone (rule h) D) s n.
Proof.
  intros N Q s rule HN P HQ. set (rail := fun k h => used N (fun n => rule h k (to_last s 1) s n)).
  assert (U : forall k h, k < s -> h < Q -> rail k h < N /\ 1 <= rule h k (to_last s 1) s (rail k h)).
  { intros k h Hk Hh. apply (used_is N (fun n => rule h k (to_last s 1) s n)).
    rewrite (P h Hh k (to_last s 1) s) by lia. unfold to_last. rewrite Nat.eqb_refl. lia. }
  destruct (two_alike s (N ^ Q) (fun k => code N Q (rail k)) HQ) as (k & l & Hk & Hl & E).
  { intros k Hk. apply code_below. intros h Hh. now apply U. }
  assert (Same : forall h, h < Q -> rail k h = rail l h).
  { apply (code_inj N Q); auto; intros h Hh; apply U; lia. }
  set (on := fun i => (i =? k) || (i =? l)). exists (bunch s 1 on). split; [|split].
  - intros i. unfold bunch, to_last. destruct (on i), (Nat.ltb_spec i s); cbn [andb]; auto.
    destruct (Nat.eqb_spec i s); [lia|auto].
  - exists (apart s 1 on). split; [|apply apart_within]. apply apart_feasible.
    assert (count s on <= 2); [|lia]. unfold count.
    transitivity (sum s (fun i => (if i =? k then 1 else 0) + (if i =? l then 1 else 0))).
    + apply sum_le. intros i _. unfold on. destruct (i =? k), (i =? l); simpl; lia.
    + rewrite sum_add, !sum_ind. destruct (k <? s), (l <? s); lia.
  - intros h Hh. exists (rail k h). split; [apply U; lia|]. unfold Rcv. cbn [sum].
    transitivity (sum s (fun i => (if i =? k then 1 else 0) + (if i =? l then 1 else 0))).
    + rewrite sum_add, !sum_ind. destruct (Nat.ltb_spec k s), (Nat.ltb_spec l s); lia.
    + transitivity (sum s (fun i => alone (rule h) (bunch s 1 on) i s (rail k h))); [|lia].
      apply sum_le. intros i Hi. unfold alone, bunch, on. destruct (Nat.ltb_spec i s); [|lia].
      destruct (Nat.eqb_spec i k) as [A|A], (Nat.eqb_spec i l) as [B|B]; cbn [andb orb]; try lia; subst i.
      * destruct (U k h Hi Hh). lia.
      * destruct (U l h Hi Hh). rewrite Same by auto. lia.
Qed.

(** enough for two senders on two rails: some bit h < Q parts any two numbers below 2^Q *)
Theorem T18_bits : forall Q k l, k < 2 ^ Q -> l < 2 ^ Q -> k <> l ->
  exists h, h < Q /\ Nat.testbit k h <> Nat.testbit l h.
Proof.
  induction Q as [|Q IH]; intros k l Hk Hl H; simpl in Hk, Hl; [lia|].
  pose proof (Nat.div2_odd k) as K. pose proof (Nat.div2_odd l) as L.
  destruct (bool_dec (Nat.odd k) (Nat.odd l)) as [E|E].
  - destruct (IH (Nat.div2 k) (Nat.div2 l)) as (h & Hh & B); [lia|lia|intros D; rewrite D, E in K; lia|].
    exists (S h). split; [lia|exact B].
  - exists 0. split; [lia|exact E].
Qed.

(** ** A number from each side: rail u b + v has the chunks with the sender's number u and the
    receiver's number v, and no number is given more often than the average rounded up *)
Theorem T18_numbers : forall M a b D x y T, 1 <= a -> 1 <= b ->
  (forall k u, k < M -> u < a ->
    sum M (fun f => sum b (fun v => x k f (u * b + v))) <= (row M D k + (a - 1)) / a) ->
  (forall f v, f < M -> v < b ->
    sum M (fun k => sum a (fun u => x k f (u * b + v))) <= (col M D f + (b - 1)) / b) ->
  feasible M (a * b) D y -> within M (a * b) y T -> within M (a * b) x (max a b * T).
Proof.
  intros M a b D x y T Ha Hb Sent Got Y W k n Hk Hn.
  destruct (line_sums M (a * b) D y T Y W k Hk) as [R C].
  pose proof (Nat.mod_upper_bound n b ltac:(lia)) as V. set (v := n mod b) in *.
  assert (U : n / b < a) by (apply Nat.div_lt_upper_bound; lia). set (u := n / b) in *.
  assert (E : n = u * b + v) by (unfold u, v; rewrite (Nat.mul_comm _ b); apply Nat.div_mod_eq).
  assert (Up : forall c d z, 1 <= c -> z <= c * (d * T) -> (z + (c - 1)) / c <= d * T).
  { intros c d z Hc Hz. apply Nat.lt_succ_r, Nat.div_lt_upper_bound; [lia|]. rewrite Nat.mul_succ_r. lia. }
  split.
  - transitivity (b * T); [|apply Nat.mul_le_mono_r; lia].
    etransitivity; [|apply (Up a b (row M D k)); [lia|rewrite Nat.mul_assoc; exact R]].
    etransitivity; [|exact (Sent k u Hk U)]. unfold Snd. apply sum_le. intros f _. rewrite E.
    exact (sum_single b (fun v => x k f (u * b + v)) v V).
  - transitivity (a * T); [|apply Nat.mul_le_mono_r; lia].
    etransitivity; [|apply (Up b a (col M D k)); [lia|rewrite Nat.mul_assoc, (Nat.mul_comm b a); exact C]].
    etransitivity; [|exact (Got k v Hk V)]. unfold Rcv. apply sum_le. intros i _. rewrite E.
    exact (sum_single a (fun u => x i k (u * b + v)) u U).
Qed.

(** ** The rule that attains it: N = L (r + 1) rails, at most r (r + 1) senders in r + 1 classes of r

    Class i owns the rails that are i mod (r + 1).  It takes these first, upwards, and then the others
    downwards; [place] is when it comes to rail n, counted from 1. *)
Definition place (r L i n : nat) : nat :=
  if n mod S r =? i then S (n / S r) else L * S r - r * S (n / S r) + (n + (S r - i)) mod S r.
Definition own_first (r L i b n : nat) : nat := if place r L i n <=? b then 1 else 0.

Lemma offset r i n : i <= r -> n mod S r <> i -> 1 <= (n + (S r - i)) mod S r <= r.
Proof.
  intros Hi H. pose proof (Nat.mod_upper_bound (n + (S r - i)) (S r) ltac:(lia)) as B.
  destruct ((n + (S r - i)) mod S r) as [|o] eqn:E; [|lia]. exfalso. apply H.
  pose proof (Nat.div_mod_eq (n + (S r - i)) (S r)) as D. rewrite E in D.
  set (u := (n + (S r - i)) / S r) in *.
  assert (U : 1 <= u) by nia.
  replace n with (i + (u - 1) * S r) by nia. rewrite Nat.mod_add by lia. apply Nat.mod_small. lia.
Qed.

Lemma level r L n : n < L * S r -> S (n / S r) <= L.
Proof. intros H. apply Nat.div_lt_upper_bound; lia. Qed.

(** of senders that together have no more chunks than rails, at most r come to a rail *)
Theorem T18_owners : forall r L s cls b n, (forall k, k < s -> cls k <= r) ->
  (forall i, count s (fun k => cls k =? i) <= r) -> sum s b <= L * S r -> n < L * S r ->
  sum s (fun k => own_first r L (cls k) (b k) n) <= r.
Proof.
  intros r L s cls b n C K B Hn. set (u := S (n / S r)). set (w := L * S r + 1 - r * u).
  pose proof (level r L n Hn) as U. fold u in U. assert (W : u <= w) by (unfold w; nia).
  set (mine := fun k => cls k =? n mod S r). set (on := fun k => place r L (cls k) (n) <=? b k).
  set (e := count s (fun k => on k && negb (mine k))). set (o := count s (fun k => on k && mine k)).
  assert (Split : sum s (fun k => own_first r L (cls k) (b k) n) = o + e).
  { unfold o, e, count. rewrite <- sum_add. apply sum_ext. intros k _. unfold own_first. fold (on k).
    destruct (on k), (mine k); reflexivity. }
  assert (O : o <= r).
  { transitivity (count s mine); [|apply K]. apply sum_le. intros k _. destruct (on k), (mine k); simpl; lia. }
  assert (Cost : o * u + e * w <= sum s b).
  { unfold o, e, count. rewrite (Nat.mul_comm _ u), (Nat.mul_comm _ w), !sum_mul, <- sum_add. apply sum_le.
    intros k Hk. unfold on, mine. specialize (C k Hk).
    destruct (Nat.leb_spec (place r L (cls k) n) (b k)) as [P|P]; cbn [andb]; [|lia].
    unfold place in P. rewrite (Nat.eqb_sym (cls k)).
    destruct (Nat.eqb_spec (n mod S r) (cls k)) as [E|E]; cbn [negb]; [fold u in P; lia|].
    pose proof (offset r (cls k) n C E). fold u in P. unfold w. lia. }
  rewrite Split. destruct (le_lt_dec (o + e) r) as [H|H]; [exact H|exfalso].
  pose proof (Nat.mul_le_mono_r (S (r - o)) e w ltac:(lia)) as E1. rewrite Nat.mul_succ_l in E1.
  pose proof (Nat.mul_le_mono_l u w (r - o) W) as E2.
  assert (E3 : o * u + (r - o) * u = r * u) by (rewrite <- Nat.mul_add_distr_r; f_equal; lia).
  assert (E4 : r * u + w <= L * S r) by lia. unfold w in E4. lia.
Qed.

Lemma place_within r L i n : i <= r -> n < L * S r -> 1 <= place r L i n <= L * S r.
Proof.
  intros Hi Hn. pose proof (level r L n Hn). unfold place.
  destruct (Nat.eqb_spec (n mod S r) i) as [E|E]; [nia|]. pose proof (offset r i n Hi E). nia.
Qed.

Lemma place_once r L i n m : i <= r -> n < L * S r -> m < L * S r -> place r L i n = place r L i m -> n = m.
Proof.
  intros Hi Hn Hm. pose proof (level r L n Hn) as Un. pose proof (level r L m Hm) as Um. unfold place.
  pose proof (Nat.div_mod_eq n (S r)) as Dn. pose proof (Nat.div_mod_eq m (S r)) as Dm.
  set (t := n / S r) in *. set (u := m / S r) in *.
  pose proof (Nat.mul_le_mono_l _ _ r Un). pose proof (Nat.mul_le_mono_l _ _ r Um).
  assert (L * S r = L + r * L) by lia.
  destruct (Nat.eqb_spec (n mod S r) i) as [E|E], (Nat.eqb_spec (m mod S r) i) as [F|F]; intros Eq.
  - rewrite Dn, Dm, E, F. f_equal. f_equal. lia.
  - pose proof (offset r i m Hi F). lia.
  - pose proof (offset r i n Hi E). lia.
  - pose proof (offset r i n Hi E) as On. pose proof (offset r i m Hi F) as Om.
    assert (Up : forall a b, a < b -> r * S a + r <= r * S b).
    { intros a b G. pose proof (Nat.mul_le_mono_l (S (S a)) (S b) r ltac:(lia)) as B. rewrite (Nat.mul_succ_r r (S a)) in B. lia. }
    assert (T : t = u) by (destruct (lt_eq_lt_dec t u) as [[G|G]|G]; [specialize (Up _ _ G); lia|auto|specialize (Up _ _ G); lia]).
    assert (Q : (n + (S r - i)) mod S r = (m + (S r - i)) mod S r) by (rewrite T in Eq; lia).
    pose proof (Nat.div_mod_eq (n + (S r - i)) (S r)) as An. pose proof (Nat.div_mod_eq (m + (S r - i)) (S r)) as Am.
    pose proof (Nat.mod_upper_bound n (S r) ltac:(lia)). pose proof (Nat.mod_upper_bound m (S r) ltac:(lia)).
    set (v := (n + (S r - i)) / S r) in *. set (w := (m + (S r - i)) / S r) in *.
    assert (Up2 : forall a b, a < b -> S r * a + S r <= S r * b).
    { intros a b G. pose proof (Nat.mul_le_mono_l (S a) b (S r) ltac:(lia)) as B. rewrite (Nat.mul_succ_r (S r) a) in B. lia. }
    rewrite T in Dn. rewrite Q in An.
    assert (v = w) as -> by (destruct (lt_eq_lt_dec v w) as [[G|G]|G]; [specialize (Up2 _ _ G); lia|auto|specialize (Up2 _ _ G); lia]).
    lia.
Qed.

(** it is a rule: b <= N chunks go on b rails *)
Theorem T18_owners_places : forall r L i b, i <= r -> b <= L * S r ->
  sum (L * S r) (fun n => own_first r L i b n) = b.
Proof.
  intros r L i b Hi Hb. set (N := L * S r) in *. set (c := fun j => count N (fun n => place r L i n =? S j)).
  assert (One : forall j, c j <= 1).
  { intros j. apply count_once. intros n m Hn Hm A B. apply Nat.eqb_eq in A, B.
    apply (place_once r L i); auto. congruence. }
  assert (Upto : forall B, B <= N -> sum B c = sum N (fun n => if place r L i n <=? B then 1 else 0)).
  { intros B _. unfold c, count. rewrite sum_swap. apply sum_ext. intros n Hn.
    pose proof (place_within r L i n Hi Hn) as P. destruct (place r L i n) as [|j] eqn:E; [lia|].
    rewrite (sum_ext B _ (fun x => if x =? j then 1 else 0)).
    - rewrite sum_ind. destruct (Nat.ltb_spec j B), (Nat.leb_spec (S j) B); lia.
    - intros x _. cbn [Nat.eqb]. now rewrite Nat.eqb_sym. }
  assert (All : sum N c = N).
  { rewrite Upto by lia. rewrite (sum_ext N _ (fun _ => 1)); [rewrite sum_const; lia|].
    intros n Hn. pose proof (place_within r L i n Hi Hn). destruct (Nat.leb_spec (place r L i n) N); lia. }
  unfold own_first. rewrite <- Upto by auto.
  replace N with (b + (N - b)) in All by lia. rewrite sum_split in All.
  pose proof (sum_le_const b 1 c (fun j _ => One j)).
  pose proof (sum_le_const (N - b) 1 (fun j => c (b + j)) (fun j _ => One (b + j))). lia.
Qed.
