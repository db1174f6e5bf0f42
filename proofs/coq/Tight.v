(** * The bounds of T3, T4 and T6 are attained, and T2's bad split is what LPT does *)
From Coq Require Import Arith Lia List Bool Sorted.
From Rails Require Import Sums Model Balance Schedule Greedy.
Import ListNotations.

(** ** T3: s senders, each with a private sink for the rest of its traffic

    Node 0 receives; nodes 1 .. s send; node s + k is the sink of sender k.  Every sender puts
    s units on every rail; on rail 0, min(N, s) of them go to node 0. *)
Definition sender (s k : nat) : bool := (1 <=? k) && (k <=? s).
Definition xsink (N s k f n : nat) : nat :=
  if sender s k then
    if f =? 0 then if n =? 0 then Nat.min N s else 0
    else if f =? s + k then if n =? 0 then s - Nat.min N s else s
    else 0
  else 0.

Lemma sum_two n a b g : a < n -> b < n -> a <> b ->
  (forall i, i < n -> i <> a -> i <> b -> g i = 0) -> sum n g = g a + g b.
Proof.
  intros Ha Hb Hab H.
  rewrite (sum_ext n g (fun i => (if i =? a then g i else 0) + (if i =? b then g i else 0))).
  - rewrite sum_add, !sum_pick by assumption. reflexivity.
  - intros i Hi. destruct (Nat.eqb_spec i a), (Nat.eqb_spec i b); subst; try lia. rewrite H by assumption. reflexivity.
Qed.

Lemma sum_one n a g : a < n -> (forall i, i < n -> i <> a -> g i = 0) -> sum n g = g a.
Proof.
  intros Ha H. rewrite (sum_ext n g (fun i => if i =? a then g i else 0)); [now apply sum_pick|].
  intros i Hi. destruct (Nat.eqb_spec i a); auto.
Qed.

Lemma sum_range n s v : s < n -> sum n (fun k => if sender s k then v else 0) = s * v.
Proof.
  assert (A : forall m, m <= s -> sum (S m) (fun k => if sender s k then v else 0) = m * v).
  { induction m as [|m IH]; intros Hm; [reflexivity|]. cbn [sum] in *. rewrite IH by lia.
    unfold sender. destruct (Nat.leb_spec 1 (S m)), (Nat.leb_spec (S m) s); simpl andb; cbv iota; lia. }
  intros H. induction n as [|n IH]; [lia|]. destruct (Nat.eq_dec s n) as [->|].
  - now apply A.
  - cbn [sum]. rewrite IH by lia. unfold sender.
    destruct (Nat.leb_spec 1 n), (Nat.leb_spec n s); simpl andb; cbv iota; lia.
Qed.

(** every N and every number of senders: receiving is exactly min(N, s) times the mean of the fullest node *)
Theorem T3_attained : forall N s, 1 <= N -> 1 <= s ->
  let M := 2 * s + 1 in let D := fun k f => sum N (xsink N s k f) in let L := N * s in
  feasible M N D (xsink N s) /\
  (forall k n, k < M -> n < N -> N * Snd M (xsink N s) k n = row M D k) /\
  (forall k, k < M -> row M D k <= L) /\ (forall f, f < M -> col M D f <= L) /\
  senders M D 0 = s /\
  N * Rcv M (xsink N s) 0 0 = Nat.min N s * L.
Proof.
  intros N s HN Hs M D L.
  assert (HSnd : forall k n, k < M -> n < N -> Snd M (xsink N s) k n = if sender s k then s else 0).
  { intros k n Hk Hn. unfold Snd, xsink. destruct (sender s k) eqn:E.
    - unfold sender in E. apply andb_prop in E. destruct E as [E1 E2]. apply Nat.leb_le in E1, E2.
      rewrite (sum_two M 0 (s + k)) by (unfold M; try lia; intros i _ H0 H1;
        destruct (Nat.eqb_spec i 0), (Nat.eqb_spec i (s + k)); lia).
      simpl. destruct (Nat.eqb_spec (s + k) 0); [lia|]. rewrite Nat.eqb_refl.
      destruct (n =? 0); lia.
    - apply sum_0. auto. }
  assert (Hrow : forall k, k < M -> row M D k = if sender s k then L else 0).
  { intros k Hk. unfold row, D. rewrite sum_swap.
    rewrite (sum_ext N _ (fun _ => if sender s k then s else 0)).
    - rewrite sum_const. unfold L. destruct (sender s k); lia.
    - intros n Hn. exact (HSnd k n Hk Hn). }
  assert (D0 : forall k, D k 0 = if sender s k then Nat.min N s else 0).
  { intros k. unfold D, xsink. destruct (sender s k); [|now apply sum_0].
    rewrite (sum_one N 0); [reflexivity|lia|]. intros i _ Hi. destruct (Nat.eqb_spec i 0); [lia|reflexivity]. }
  repeat split.
  - intros k n Hk Hn. rewrite HSnd, Hrow by assumption. unfold L. destruct (sender s k); lia.
  - intros k Hk. rewrite Hrow by assumption. destruct (sender s k); lia.
  - intros f Hf. unfold col. destruct (Nat.eq_dec f 0) as [->|Hf0].
    + rewrite (sum_ext M _ (fun k => if sender s k then Nat.min N s else 0)) by (intros; apply D0).
      rewrite sum_range by (unfold M; lia). unfold L. nia.
    + destruct (le_lt_dec f s) as [Hle|Hgt].
      * rewrite sum_0; [lia|]. intros k Hk. unfold D. apply sum_0. intros n _. unfold xsink.
        destruct (sender s k) eqn:E; [|reflexivity]. unfold sender in E. apply andb_prop in E.
        destruct E as [E1 _]. apply Nat.leb_le in E1.
        destruct (Nat.eqb_spec f 0), (Nat.eqb_spec f (s + k)); lia.
      * rewrite (sum_one M (f - s)).
        -- apply Nat.le_trans with (row M D (f - s)).
           ++ exact (sum_single M (fun g => D (f - s) g) f Hf).
           ++ rewrite Hrow by lia. destruct (sender s (f - s)); lia.
        -- lia.
        -- intros k Hk Hne. apply sum_0. intros n _. unfold xsink.
           destruct (sender s k); [|reflexivity].
           destruct (Nat.eqb_spec f 0), (Nat.eqb_spec f (s + k)); lia.
  - unfold senders, count. rewrite (sum_ext M _ (fun k => if sender s k then 1 else 0)).
    + rewrite sum_range by (unfold M; lia). lia.
    + intros k _. rewrite D0. destruct (sender s k); [|reflexivity].
      destruct (Nat.ltb_spec 0 (Nat.min N s)); [reflexivity|lia].
  - assert (E : Rcv M (xsink N s) 0 0 = s * Nat.min N s).
    { unfold Rcv. rewrite (sum_ext M _ (fun k => if sender s k then Nat.min N s else 0)) by reflexivity.
      apply sum_range. unfold M. lia. }
    rewrite E. unfold L. lia.
Qed.

(** ** T4: every sender has one leftover chunk for node 0 and all start at rail 0 *)
Definition Dleft (q k f : nat) : nat := if (f =? 0) && negb (k =? 0) then q else 0.
Definition xleft (q k f n : nat) : nat := if n =? 0 then Dleft q k f else 0.

Theorem T4_tight : forall M N q, 1 <= N -> 1 <= M -> 1 <= q ->
  feasible M N (Dleft q) (xleft q) /\ chunked M N (xleft q) q /\ senders M (Dleft q) 0 = M - 1 /\
  N * Rcv M (xleft q) 0 0 = col M (Dleft q) 0 + (N - 1) * senders M (Dleft q) 0 * q.
Proof.
  intros M N q HN HM Hq.
  assert (Others : forall v, sum M (fun k => if negb (k =? 0) then v else 0) = (M - 1) * v).
  { intros v. clear - HM. induction M as [|m IH]; [lia|]. simpl sum. destruct m as [|m]; [simpl; lia|].
    rewrite IH by lia. destruct (Nat.eqb_spec (S m) 0); [lia|]. simpl. lia. }
  assert (Hc : col M (Dleft q) 0 = (M - 1) * q) by (exact (Others q)).
  assert (HR : Rcv M (xleft q) 0 0 = (M - 1) * q) by (exact (Others q)).
  assert (Hse : senders M (Dleft q) 0 = M - 1).
  { unfold senders, count. rewrite (sum_ext M _ (fun k => if negb (k =? 0) then 1 else 0)).
    - rewrite Others. lia.
    - intros k _. unfold Dleft. simpl. destruct (k =? 0); simpl; [reflexivity|].
      destruct (Nat.ltb_spec 0 q); [reflexivity|lia]. }
  split; [|split; [|split]].
  - intros k f _ _. unfold xleft. rewrite (sum_one N 0); [reflexivity|lia|].
    intros n _ Hn. destruct (Nat.eqb_spec n 0); [lia|reflexivity].
  - intros k f n n' _ _ _ _. unfold xleft, Dleft.
    destruct (n =? 0), (n' =? 0), ((f =? 0) && negb (k =? 0)); lia.
  - exact Hse.
  - rewrite Hse, Hc, HR. destruct N; [lia|]. simpl Nat.sub. rewrite Nat.sub_0_r. nia.
Qed.

(** hence the chunk size: (N-1) s q within a/b of the fullest node's bytes keeps every receive within 1 + a/b of L/N *)
Theorem T4_chunk_size : forall M N D x q L a b, feasible M N D x -> chunked M N x q ->
  (forall f, f < M -> col M D f <= L) ->
  (forall f, f < M -> b * ((N - 1) * senders M D f * q) <= a * L) ->
  forall f n, f < M -> n < N -> b * (N * Rcv M x f n) <= (b + a) * L.
Proof.
  intros M N D x q L a b F Q HL Hq f n Hf Hn.
  destruct (T4_chunk M N D x F q Q) as [A _]. specialize (A f n Hf Hn).
  specialize (HL f Hf). specialize (Hq f Hf). nia.
Qed.

(** ** T6: Graham's family, for every N

    Sizes 2N-1, 2N-1, 2N-2, 2N-2, ..., N, N and one N more: job [t] of the first 2N has size
    2N-1-t/2.  LPT pairs job [t] with job 2N-1-t, leaves N rails at 3N-1, and adds N. *)
Definition psize (N t : nat) : nat := if t <? 2 * N then 2 * N - 1 - t / 2 else N.
Definition tight (N : nat) : list nat := map (psize N) (seq 0 (2 * N + 1)).
Definition lpt_rail (N t : nat) : nat := if t <? N then t else if t <? 2 * N then 2 * N - 1 - t else 0.
Definition lpt_family (N : nat) : sched := map (fun t => (psize N t, lpt_rail N t)) (seq 0 (2 * N + 1)).
(** the optimum: the three of size N together, the others in pairs of sum 3N *)
Definition opt_rail (N t : nat) : nat :=
  if t <? 2 * (N - 1) then if Nat.even t then 1 + t / 2 else N - 1 - t / 2 else 0.
Definition opt_family (N : nat) : sched := map (fun t => (psize N t, opt_rail N t)) (seq 0 (2 * N + 1)).

Lemma load_family (p m : nat -> nat) n i :
  load (map (fun t => (p t, m t)) (seq 0 n)) i = sum n (fun t => if m t =? i then p t else 0).
Proof.
  induction n as [|n IH]; [reflexivity|]. rewrite seq_S, map_app, load_app, IH. simpl. f_equal.
  unfold load, jobs_on. simpl. destruct (m n =? i); simpl; lia.
Qed.

Lemma psize_anti N t u : t <= u -> psize N u <= psize N t.
Proof.
  intros H. unfold psize. pose proof (Nat.div_le_mono t u 2 ltac:(lia) H).
  destruct (Nat.ltb_spec t (2 * N)), (Nat.ltb_spec u (2 * N)); try lia.
  assert (t / 2 < N) by (apply Nat.div_lt_upper_bound; lia). lia.
Qed.

Lemma tight_sorted N : nonincreasing (tight N).
Proof.
  assert (A : forall n s, nonincreasing (map (psize N) (seq s n))); [|apply A].
  unfold nonincreasing. induction n as [|n IH]; intros s; simpl; constructor; auto.
  apply Forall_map, Forall_forall. intros u Hu. apply in_seq in Hu. apply psize_anti. lia.
Qed.

Lemma psize_pair N t : t < 2 * N -> psize N t + psize N (2 * N - 1 - t) = 3 * N - 1.
Proof.
  intros H. unfold psize. destruct (Nat.ltb_spec t (2 * N)), (Nat.ltb_spec (2 * N - 1 - t) (2 * N)); try lia.
  pose proof (Nat.div_mod t 2 ltac:(lia)). pose proof (Nat.mod_upper_bound t 2 ltac:(lia)).
  pose proof (Nat.div_mod (2 * N - 1 - t) 2 ltac:(lia)). pose proof (Nat.mod_upper_bound (2 * N - 1 - t) 2 ltac:(lia)). lia.
Qed.

(** what LPT has put on rail [i] before job [t] *)
Lemma lpt_load N t i : i < N -> t <= 2 * N ->
  sum t (fun u => if lpt_rail N u =? i then psize N u else 0) =
  (if i <? t then psize N i else 0) + (if 2 * N - 1 - i <? t then psize N (2 * N - 1 - i) else 0).
Proof.
  intros Hi. induction t as [|t IH]; intros Ht; [reflexivity|]. simpl sum. rewrite IH by lia. clear IH.
  unfold lpt_rail. destruct (Nat.ltb_spec t N); [|destruct (Nat.ltb_spec t (2 * N)); [|lia]].
  - destruct (Nat.ltb_spec i t), (Nat.ltb_spec i (S t)), (Nat.ltb_spec (2 * N - 1 - i) t),
      (Nat.ltb_spec (2 * N - 1 - i) (S t)), (Nat.eqb_spec t i); try lia. subst. lia.
  - destruct (Nat.eqb_spec (2 * N - 1 - t) i) as [E|E];
      destruct (Nat.ltb_spec i t), (Nat.ltb_spec i (S t)),
      (Nat.ltb_spec (2 * N - 1 - i) t), (Nat.ltb_spec (2 * N - 1 - i) (S t)); try lia.
    replace (2 * N - 1 - i) with t by lia. lia.
Qed.

Lemma family_split p m n s1 (q i : nat) s2 : map (fun t => (p t, m t)) (seq 0 n) = s1 ++ (q, i) :: s2 ->
  s1 = map (fun t => (p t, m t)) (seq 0 (length s1)) /\ length s1 < n /\ i = m (length s1) /\ q = p (length s1).
Proof.
  intros E. assert (Ln : length s1 < n).
  { apply (f_equal (@length (nat * nat))) in E. rewrite map_length, seq_length, app_length in E. simpl in E. lia. }
  replace n with (length s1 + S (n - length s1 - 1)) in E by lia.
  rewrite seq_app, map_app in E. simpl in E.
  apply app_eq_app in E. destruct E as (l & [[E1 E2]|[E1 E2]]).
  - assert (l = []) as ->.
    { apply (f_equal (@length (nat * nat))) in E1. rewrite app_length, map_length, seq_length in E1.
      destruct l; simpl in E1; [auto|lia]. }
    rewrite app_nil_r in E1. simpl in E2. injection E2 as Eq Ei _. auto.
  - assert (l = []) as ->.
    { apply (f_equal (@length (nat * nat))) in E1. rewrite app_length, map_length, seq_length in E1.
      destruct l; simpl in E1; [auto|lia]. }
    rewrite app_nil_r in E1. simpl in E2. injection E2 as Eq Ei _. subst. repeat split; auto.
Qed.

Lemma lpt_greedy N : 1 <= N -> greedy N (lpt_family N).
Proof.
  intros HN s1 q i s2 E j Hj. unfold lpt_family in E. apply family_split in E. destruct E as (E & Ln & Ei & _).
  set (t := length s1) in *. rewrite E, !load_family.
  assert (Hi : i < N).
  { subst i. unfold lpt_rail. destruct (Nat.ltb_spec t N), (Nat.ltb_spec t (2 * N)); lia. }
  rewrite !lpt_load by lia. subst i. unfold lpt_rail in *.
  destruct (Nat.ltb_spec t N) as [H1|H1]; [|destruct (Nat.ltb_spec t (2 * N)) as [H2|H2]].
  - destruct (Nat.ltb_spec t t), (Nat.ltb_spec (2 * N - 1 - t) t); lia.
  - replace (2 * N - 1 - (2 * N - 1 - t)) with t by lia. rewrite Nat.ltb_irrefl.
    destruct (Nat.ltb_spec (2 * N - 1 - t) t), (Nat.ltb_spec j t), (Nat.ltb_spec (2 * N - 1 - j) t); try lia.
    + pose proof (psize_pair N j ltac:(lia)). pose proof (psize_pair N t ltac:(lia)).
      replace (2 * N - 1 - t) with (2 * N - 1 - t) in * by lia. lia.
    + pose proof (psize_anti N j (2 * N - 1 - t) ltac:(lia)). lia.
  - assert (t = 2 * N) by lia. replace t with (2 * N) in *.
    pose proof (psize_pair N 0 ltac:(lia)). pose proof (psize_pair N j ltac:(lia)).
    destruct (Nat.ltb_spec 0 (2 * N)), (Nat.ltb_spec (2 * N - 1 - 0) (2 * N)), (Nat.ltb_spec j (2 * N)),
      (Nat.ltb_spec (2 * N - 1 - j) (2 * N)); lia.
Qed.

Lemma cmax_is N s C : (forall i, i < N -> load s i <= C) -> (exists i, i < N /\ load s i = C) -> cmax N s = C.
Proof.
  intros H (i & Hi & E). apply Nat.le_antisymm; [now apply cmax_le|]. rewrite <- E. now apply load_cmax.
Qed.

Lemma opt_load N i : 1 <= N -> i < N ->
  sum (2 * N + 1) (fun t => if opt_rail N t =? i then psize N t else 0) = 3 * N.
Proof.
  intros HN Hi. destruct (Nat.eq_dec i 0) as [->|Hi0].
  - replace (2 * N + 1) with (S (S (S (2 * (N - 1))))) by lia. cbn [sum].
    rewrite sum_0.
    + unfold opt_rail. destruct (Nat.ltb_spec (2 * (N - 1)) (2 * (N - 1))), (Nat.ltb_spec (S (2 * (N - 1))) (2 * (N - 1))),
        (Nat.ltb_spec (S (S (2 * (N - 1)))) (2 * (N - 1))); try lia. rewrite !Nat.eqb_refl. unfold psize.
      replace (S (S (2 * (N - 1)))) with (2 * N) by lia. replace (S (2 * (N - 1))) with (1 + (N - 1) * 2) by lia.
      replace (2 * (N - 1)) with ((N - 1) * 2) by lia. rewrite Nat.div_add, !Nat.div_mul by lia.
      destruct (Nat.ltb_spec ((N - 1) * 2) (2 * N)), (Nat.ltb_spec (1 + (N - 1) * 2) (2 * N)),
        (Nat.ltb_spec (2 * N) (2 * N)); simpl; lia.
    + intros t Ht. unfold opt_rail. destruct (Nat.ltb_spec t (2 * (N - 1))); [|lia].
      assert (t / 2 < N - 1) by (apply Nat.div_lt_upper_bound; lia).
      destruct (Nat.even t); [destruct (Nat.eqb_spec (1 + t / 2) 0)|destruct (Nat.eqb_spec (N - 1 - t / 2) 0)]; lia.
  - assert (A : forall h, Nat.even (2 * h) = true) by (intros h; rewrite Nat.even_mul; reflexivity).
    assert (B : forall h, Nat.even (1 + 2 * h) = false).
    { intros h. rewrite Nat.even_add, A. reflexivity. }
    assert (A2 : forall h, 2 * h / 2 = h) by (intros h; rewrite Nat.mul_comm; apply Nat.div_mul; lia).
    assert (B2 : forall h, (1 + 2 * h) / 2 = h) by (intros h; rewrite (Nat.mul_comm 2), Nat.div_add by lia; reflexivity).
    rewrite (sum_two _ (2 * (i - 1)) (1 + 2 * (N - 1 - i))); try lia.
    + unfold opt_rail, psize. rewrite A, B, A2, B2.
      destruct (Nat.ltb_spec (2 * (i - 1)) (2 * (N - 1))), (Nat.ltb_spec (1 + 2 * (N - 1 - i)) (2 * (N - 1))),
        (Nat.ltb_spec (2 * (i - 1)) (2 * N)), (Nat.ltb_spec (1 + 2 * (N - 1 - i)) (2 * N)); try lia.
      replace (1 + (i - 1)) with i by lia. replace (N - 1 - (N - 1 - i)) with i by lia. rewrite !Nat.eqb_refl. lia.
    + intros t Ht Ha Hb. unfold opt_rail. destruct (Nat.ltb_spec t (2 * (N - 1))) as [Hlt|].
      * destruct (Nat.even t) eqn:E.
        -- apply Nat.even_spec in E. destruct E as [h ->]. rewrite A2. destruct (Nat.eqb_spec (1 + h) i); lia.
        -- assert (O : Nat.odd t = true) by (unfold Nat.odd; now rewrite E). apply Nat.odd_spec in O. destruct O as [h ->].
           replace (2 * h + 1) with (1 + 2 * h) by lia. rewrite B2. destruct (Nat.eqb_spec (N - 1 - h) i); lia.
      * destruct (Nat.eqb_spec 0 i); lia.
Qed.

Lemma family_schedules N : 1 <= N -> schedules N (tight N) (lpt_family N) /\ schedules N (tight N) (opt_family N).
Proof.
  intros HN.
  assert (Rl : forall t, lpt_rail N t < N).
  { intros t. unfold lpt_rail. destruct (Nat.ltb_spec t N), (Nat.ltb_spec t (2 * N)); lia. }
  assert (Ro : forall t, opt_rail N t < N).
  { intros t. unfold opt_rail. destruct (Nat.ltb_spec t (2 * (N - 1))); [|lia].
    assert (t / 2 < N - 1) by (apply Nat.div_lt_upper_bound; lia). destruct (Nat.even t); lia. }
  assert (Sch : forall m, (forall t, m t < N) -> schedules N (tight N) (map (fun t => (psize N t, m t)) (seq 0 (2 * N + 1)))).
  { intros m Hm. split; [unfold sizes, tight; rewrite map_map; reflexivity|].
    apply Forall_map, Forall_forall. intros t _. apply Hm. }
  split; now apply Sch.
Qed.

Theorem T6_tight : forall N, 1 <= N -> exists s t,
  nonincreasing (tight N) /\ length (tight N) = 2 * N + 1 /\
  schedules N (tight N) s /\ greedy N s /\ cmax N s = 4 * N - 1 /\
  schedules N (tight N) t /\ cmax N t = 3 * N.
Proof.
  intros N HN. exists (lpt_family N), (opt_family N).
  destruct (family_schedules N HN) as [Sl So].
  split; [apply tight_sorted|]. split; [unfold tight; now rewrite map_length, seq_length|].
  split; [exact Sl|]. split; [now apply lpt_greedy|]. split; [|split; [exact So|]].
  - assert (Ll : forall i, i < N -> load (lpt_family N) i = (3 * N - 1) + (if i =? 0 then N else 0)).
    { intros i Hi. unfold lpt_family. rewrite load_family, Nat.add_1_r. cbn [sum]. rewrite lpt_load by lia.
      pose proof (psize_pair N i ltac:(lia)).
      assert (E : psize N (2 * N) = N) by (unfold psize; now rewrite Nat.ltb_irrefl).
      unfold lpt_rail. destruct (Nat.ltb_spec (2 * N) N); [lia|]. rewrite Nat.ltb_irrefl, (Nat.eqb_sym 0 i), E.
      destruct (Nat.ltb_spec i (2 * N)), (Nat.ltb_spec (2 * N - 1 - i) (2 * N)), (Nat.eqb_spec i 0); lia. }
    apply cmax_is.
    + intros i Hi. rewrite Ll by assumption. destruct (i =? 0); lia.
    + exists 0. split; [lia|]. rewrite Ll by lia. simpl Nat.eqb. cbv iota. lia.
  - apply cmax_is.
    + intros i Hi. unfold opt_family. rewrite load_family, opt_load by assumption. lia.
    + exists 0. split; [lia|]. unfold opt_family. rewrite load_family, opt_load by lia. reflexivity.
Qed.

(** ** T6d: Graham's family and r N more jobs of size N, for every N and r

    LPT's machines are level at 3N-1 before Graham's last job.  One more job of size N on every
    machine, r times, keeps them level, there and in the optimum. *)
Definition round (N n : nat) : sched := map (fun i => (N, i)) (seq 0 n).
Fixpoint rounds (N r : nat) : sched := match r with 0 => [] | S r => rounds N r ++ round N N end.
Definition lpt_start (N : nat) : sched := map (fun t => (psize N t, lpt_rail N t)) (seq 0 (2 * N)).
Definition lpt_longer (N r : nat) : sched := (lpt_start N ++ rounds N r) ++ [(N, 0)].
Definition opt_longer (N r : nat) : sched := opt_family N ++ rounds N r.

Lemma jobs_on_round N n i : jobs_on (round N n) i = if i <? n then [N] else [].
Proof.
  unfold round. induction n as [|n IH]; [reflexivity|].
  rewrite seq_S, map_app. simpl map at 2. rewrite jobs_on_snoc, IH.
  destruct (Nat.ltb_spec i n), (Nat.ltb_spec i (S n)), (Nat.eqb_spec n i); try lia; reflexivity.
Qed.

Lemma jobs_on_rounds N r i : i < N -> jobs_on (rounds N r) i = repeat N r.
Proof.
  intros Hi. induction r as [|r IH]; [reflexivity|]. simpl rounds.
  rewrite jobs_on_app, IH, jobs_on_round. apply Nat.ltb_lt in Hi. rewrite Hi.
  symmetry. apply repeat_cons.
Qed.

Lemma load_rounds N r i : i < N -> load (rounds N r) i = r * N.
Proof.
  intros Hi. unfold load. rewrite jobs_on_rounds by exact Hi. clear. induction r; simpl; lia.
Qed.

Lemma sizes_rounds N r : sizes (rounds N r) = repeat N (r * N).
Proof.
  assert (A : forall n s, map fst (map (fun i : nat => (N, i)) (seq s n)) = repeat N n).
  { induction n as [|n IH]; intros s; simpl; [reflexivity|]. now rewrite IH. }
  unfold sizes in *. induction r as [|r IH]; [reflexivity|]. simpl rounds.
  rewrite map_app, IH. unfold round. rewrite A, <- repeat_app. f_equal. lia.
Qed.

Lemma rounds_within N r : Forall (fun pm => snd pm < N) (rounds N r).
Proof.
  induction r as [|r IH]; [constructor|]. simpl rounds. apply Forall_app. split; [exact IH|].
  apply Forall_map, Forall_forall. intros i Hi. apply in_seq in Hi. simpl. lia.
Qed.

(** equal jobs on level machines, one each, are greedy *)
Lemma greedy_round N s L : greedy N s -> (forall i, i < N -> load s i = L) ->
  forall n, n <= N -> greedy N (s ++ round N n).
Proof.
  intros G H n. induction n as [|n IH]; intros Hn; [now rewrite app_nil_r|].
  unfold round. rewrite seq_S, map_app, app_assoc. apply greedy_snoc; [apply IH; lia|].
  intros j Hj. rewrite !load_app, !H by lia. unfold load. fold (round N n).
  rewrite !jobs_on_round, Nat.ltb_irrefl. simpl. lia.
Qed.

Lemma greedy_rounds N s L : greedy N s -> (forall i, i < N -> load s i = L) ->
  forall r, greedy N (s ++ rounds N r).
Proof.
  intros G H r. induction r as [|r IH]; [now rewrite app_nil_r|]. simpl rounds. rewrite app_assoc.
  apply (greedy_round N _ (L + r * N)); [exact IH| |lia].
  intros i Hi. now rewrite load_app, H, load_rounds.
Qed.

Lemma lpt_family_start N : lpt_family N = lpt_start N ++ [(psize N (2 * N), lpt_rail N (2 * N))].
Proof. unfold lpt_family, lpt_start. now rewrite Nat.add_1_r, seq_S, map_app. Qed.

Lemma load_start N i : i < N -> load (lpt_start N) i = 3 * N - 1.
Proof.
  intros Hi. unfold lpt_start. rewrite load_family, lpt_load by lia.
  pose proof (psize_pair N i ltac:(lia)).
  destruct (Nat.ltb_spec i (2 * N)), (Nat.ltb_spec (2 * N - 1 - i) (2 * N)); lia.
Qed.

Lemma count_start N i : i < N -> length (jobs_on (lpt_start N) i) = 2.
Proof.
  intros Hi.
  assert (A : forall n, length (jobs_on (map (fun t => (psize N t, lpt_rail N t)) (seq 0 n)) i)
                        = sum n (fun t => if lpt_rail N t =? i then 1 else 0)).
  { induction n as [|n IH]; [reflexivity|]. rewrite seq_S, map_app. simpl map at 2.
    rewrite jobs_on_snoc, app_length, IH. simpl. now destruct (lpt_rail N n =? i). }
  unfold lpt_start. rewrite A, (sum_two _ i (2 * N - 1 - i)); try lia; unfold lpt_rail.
  - destruct (Nat.ltb_spec i N), (Nat.ltb_spec (2 * N - 1 - i) N),
      (Nat.ltb_spec (2 * N - 1 - i) (2 * N)); try lia.
    replace (2 * N - 1 - (2 * N - 1 - i)) with i by lia. now rewrite Nat.eqb_refl.
  - intros t Ht H1 H2. destruct (Nat.ltb_spec t N), (Nat.ltb_spec t (2 * N)); try lia.
    + now destruct (Nat.eqb_spec t i).
    + destruct (Nat.eqb_spec (2 * N - 1 - t) i); lia.
Qed.

Lemma psize_least N t : N <= psize N t.
Proof.
  unfold psize. destruct (Nat.ltb_spec t (2 * N)); [|lia].
  assert (t / 2 < N) by (apply Nat.div_lt_upper_bound; lia). lia.
Qed.

Lemma sorted_more q m l : nonincreasing l -> Forall (fun x => q <= x) l -> nonincreasing (l ++ repeat q m).
Proof.
  intros H F. induction H as [|a l H IH A]; simpl.
  - induction m as [|m IH]; simpl; constructor; [exact IH|].
    apply Forall_forall. intros x Hx. apply repeat_spec in Hx. lia.
  - inversion_clear F as [|? ? Fa Fl]. constructor; [now apply IH|]. apply Forall_app. split; [exact A|].
    apply Forall_forall. intros x Hx. apply repeat_spec in Hx. lia.
Qed.

Theorem T6_sharper_tight : forall N r, 1 <= N -> exists ps s t,
  Forall (fun p => 1 <= p) ps /\ nonincreasing ps /\ schedules N ps s /\ greedy N s /\
  load s 0 = cmax N s /\ length (jobs_on s 0) = 3 + r /\ cmax N s = (4 + r) * N - 1 /\
  schedules N ps t /\ cmax N t = (3 + r) * N.
Proof.
  intros N r HN. exists (tight N ++ repeat N (r * N)), (lpt_longer N r), (opt_longer N r).
  assert (Least : Forall (fun p => N <= p) (tight N)).
  { apply Forall_map, Forall_forall. intros t _. apply psize_least. }
  assert (Ll : forall i, i < N -> load (lpt_longer N r) i = (3 + r) * N - 1 + (if i =? 0 then N else 0)).
  { intros i Hi. unfold lpt_longer. rewrite !load_app, load_start, load_rounds by exact Hi.
    unfold load, jobs_on. simpl. destruct i; simpl; lia. }
  assert (Lo : forall i, i < N -> load (opt_longer N r) i = (3 + r) * N).
  { intros i Hi. unfold opt_longer, opt_family. rewrite load_app, load_family, opt_load, load_rounds by assumption. lia. }
  assert (Cl : cmax N (lpt_longer N r) = (4 + r) * N - 1).
  { apply cmax_is; [|exists 0; split; [lia|rewrite Ll by lia; simpl; lia]].
    intros i Hi. rewrite Ll by exact Hi. destruct (i =? 0); simpl; lia. }
  assert (G : greedy N (lpt_start N)).
  { pose proof (lpt_greedy N HN) as G. rewrite lpt_family_start in G. now apply greedy_prefix in G. }
  destruct (family_schedules N HN) as [[El Fl] [Eo Fo]].
  repeat split.
  - apply Forall_app. split; [eapply Forall_impl; [|exact Least]; simpl; lia|].
    apply Forall_forall. intros x Hx. apply repeat_spec in Hx. lia.
  - apply sorted_more; [apply tight_sorted|exact Least].
  - unfold lpt_longer, sizes in *. rewrite lpt_family_start, map_app in El. simpl in El.
    rewrite !map_app. fold (sizes (rounds N r)). rewrite sizes_rounds, <- El, <- !app_assoc. f_equal. simpl.
    unfold psize. rewrite Nat.ltb_irrefl. symmetry. apply repeat_cons.
  - rewrite lpt_family_start in Fl. apply Forall_app in Fl. destruct Fl as [Fl _].
    unfold lpt_longer. rewrite !Forall_app. repeat split; [exact Fl|apply rounds_within|].
    constructor; [simpl; lia|constructor].
  - apply greedy_snoc; [now apply (greedy_rounds N _ (3 * N - 1)); [|apply load_start]|].
    intros j Hj. rewrite !load_app, !load_start, !load_rounds by lia. lia.
  - rewrite Cl, Ll by lia. simpl. lia.
  - unfold lpt_longer. rewrite !jobs_on_app, !app_length, count_start, jobs_on_rounds, repeat_length by lia. simpl. lia.
  - exact Cl.
  - unfold opt_longer, sizes in *. rewrite map_app, Eo. fold (sizes (rounds N r)). now rewrite sizes_rounds.
  - unfold opt_longer. apply Forall_app. split; [exact Fo|apply rounds_within].
  - apply cmax_is; [intros i Hi; rewrite Lo by exact Hi; lia|]. exists 0. split; [lia|]. apply Lo. lia.
Qed.

(** ** T2's bad split is what LPT with ties by index does: a sender's N equal flows, in the
       order of their destinations, go to rails 0, 1, ..., N-1 ([rank] in [Balance]) *)
Lemma argmin_first g n i : i < n -> (forall j, j < n -> g i <= g j) -> (forall j, j < i -> g i < g j) -> argmin g n = i.
Proof.
  induction n as [|n IH]; intros Hi Hmin Hfirst; [lia|]. simpl. destruct (Nat.eq_dec i n) as [->|].
  - destruct n as [|n]; [simpl; now rewrite Nat.ltb_irrefl|].
    destruct (argmin_spec g (S n) ltac:(lia)) as [A _]. specialize (Hfirst (argmin g (S n)) A).
    destruct (Nat.ltb_spec (g (S n)) (g (argmin g (S n)))); lia.
  - rewrite IH by (auto; lia). specialize (Hmin n ltac:(lia)). destruct (Nat.ltb_spec (g n) (g i)); lia.
Qed.

Theorem T2_LPT : forall N, list_schedule N (repeat 1 N) = map (fun n => (1, n)) (seq 0 N).
Proof.
  intros N. unfold list_schedule.
  assert (H : forall m i, i + m = N ->
    run N (map (fun n => (1, n)) (seq 0 i)) (repeat 1 m) = map (fun n => (1, n)) (seq 0 N)).
  { induction m as [|m IH]; intros i E; simpl; [now replace N with i by lia|].
    assert (L : forall j, load (map (fun n => (1, n)) (seq 0 i)) j = if j <? i then 1 else 0).
    { intros j. rewrite (load_family (fun _ => 1) (fun n => n)). now rewrite sum_ind. }
    rewrite (argmin_first _ N i).
    - rewrite <- (IH (S i)) by lia. rewrite seq_S, map_app. reflexivity.
    - lia.
    - intros j _. rewrite !L, Nat.ltb_irrefl. lia.
    - intros j Hj. rewrite !L, Nat.ltb_irrefl. apply Nat.ltb_lt in Hj. rewrite Hj. lia. }
  exact (H N 0 eq_refl).
Qed.
