(** * T13b: how many stages `compact` makes

    [left i j] bytes are left from server [i] to server [j], [time] is what the stages to come may
    last.  A stage is a perfect matching: server [i] sends to [mate i] for [w], or idles for what
    its pair lacks, which both lines must be able to afford.  It lasts as long as it can: until a
    pair has neither bytes nor idling left, or no pair of it has bytes. *)
From Coq Require Import Arith Lia List Bool.
From Rails Require Import Sums.

Section Compact.
  Variable n : nat.

  Definition row_of (left : nat -> nat -> nat) (i : nat) : nat := sum n (fun j => left i j).
  Definition column_of (left : nat -> nat -> nat) (j : nat) : nat := sum n (fun i => left i j).

  (** every line fits into the time *)
  Definition fits (left : nat -> nat -> nat) (time : nat) : Prop :=
    forall i, i < n -> row_of left i <= time /\ column_of left i <= time.

  (** what pair (i, j) can do: its bytes, and idling that row and column can afford *)
  Definition able (left : nat -> nat -> nat) (time i j : nat) : nat :=
    left i j + Nat.min (time - row_of left i) (time - column_of left j).

  Definition sent (left : nat -> nat -> nat) (mate : nat -> nat) (w i : nat) : nat := Nat.min w (left i (mate i)).
  Definition after (left : nat -> nat -> nat) (mate : nat -> nat) (w : nat) : nat -> nat -> nat :=
    fun i j => if j =? mate i then left i j - sent left mate w i else left i j.

  Definition matching (mate back : nat -> nat) : Prop :=
    forall i, i < n -> mate i < n /\ back i < n /\ back (mate i) = i /\ mate (back i) = i.

  Definition is_stage (left : nat -> nat -> nat) (time : nat) (mate back : nat -> nat) (w : nat) : Prop :=
    matching mate back /\ 0 < w /\ (forall i, i < n -> w <= able left time i (mate i)) /\
    exists i, i < n /\ (w = able left time i (mate i) \/ w = left i (mate i)).

  (** [k] stages from one state to another *)
  Inductive run : nat -> (nat -> nat -> nat) -> nat -> Prop :=
  | run_end left time : run 0 left time
  | run_stage k left time mate back w : is_stage left time mate back w ->
      run k (after left mate w) (time - w) -> run (S k) left time.

  (** ** One stage *)

  Lemma sum_less (f : nat -> nat) a u m : a < m -> u <= f a -> sum m (fun j => if j =? a then f j - u else f j) + u = sum m f.
  Proof.
    induction m as [|m IH]; intros Ha Hu; [lia|]. simpl. destruct (Nat.eq_dec a m) as [->|D].
    - rewrite Nat.eqb_refl. rewrite (sum_ext m (fun j => if j =? m then f j - u else f j) f); [lia|].
      intros i Hi. destruct (Nat.eqb_spec i m); [lia|reflexivity].
    - destruct (Nat.eqb_spec m a); [lia|]. specialize (IH ltac:(lia) Hu). lia.
  Qed.

  Lemma sent_le left mate w i : sent left mate w i <= w /\ sent left mate w i <= left i (mate i).
  Proof. unfold sent. lia. Qed.

  Lemma row_after left mate back w i : matching mate back -> i < n -> row_of (after left mate w) i + sent left mate w i = row_of left i.
  Proof. intros M Hi. destruct (M i Hi) as (Hm & _). apply (sum_less (fun j => left i j)); [exact Hm|apply sent_le]. Qed.

  Lemma column_after left mate back w j : matching mate back -> j < n ->
    column_of (after left mate w) j + sent left mate w (back j) = column_of left j.
  Proof.
    intros M Hj. destruct (M j Hj) as (_ & Hb & _ & E). unfold column_of.
    rewrite (sum_ext n _ (fun i => if i =? back j then left i j - sent left mate w (back j) else left i j)).
    - apply (sum_less (fun i => left i j)); [exact Hb|]. pose proof (proj2 (sent_le left mate w (back j))) as S. now rewrite E in S.
    - intros i Hi. unfold after. destruct (M i Hi) as (_ & _ & B & _).
      destruct (Nat.eqb_spec j (mate i)) as [E1|D], (Nat.eqb_spec i (back j)) as [E2|D2]; try reflexivity.
      + now rewrite <- E2.
      + exfalso. apply D2. now rewrite E1, B.
      + exfalso. apply D. now rewrite E2, E.
  Qed.

  Lemma able_time left time i j : fits left time -> i < n -> j < n -> able left time i j <= time.
  Proof.
    intros F Hi Hj. destruct (F i Hi) as [R _]. unfold able.
    pose proof (sum_single n (fun j => left i j) j Hj) as S. cbn beta in S. fold (row_of left i) in S. lia.
  Qed.

  Lemma stage_fits left time mate back w : fits left time -> is_stage left time mate back w ->
    w <= time /\ fits (after left mate w) (time - w).
  Proof.
    intros F (M & W & A & i0 & Hi0 & _). split.
    - apply (Nat.le_trans _ _ _ (A i0 Hi0)). apply able_time; auto. apply (M i0 Hi0).
    - intros i Hi. split.
      + pose proof (row_after left mate back w i M Hi) as E. specialize (A i Hi). destruct (F i Hi) as [R _]. unfold able, sent in *. lia.
      + pose proof (column_after left mate back w i M Hi) as E. destruct (M i Hi) as (_ & Hb & _ & B).
        specialize (A (back i) Hb). rewrite B in A. destruct (F i Hi) as [_ C]. unfold able, sent in *. rewrite B in *. lia.
  Qed.

  (** ** What becomes less with every stage: pairs with bytes, and lines that can idle *)

  Definition busy (left : nat -> nat -> nat) : nat := sum n (fun i => count n (fun j => 0 <? left i j)).
  Definition idle (left : nat -> nat -> nat) (time : nat) : nat :=
    count n (fun i => 0 <? time - row_of left i) + count n (fun j => 0 <? time - column_of left j).

  Lemma count_le m (P Q : nat -> bool) : (forall i, i < m -> P i = true -> Q i = true) -> count m P <= count m Q.
  Proof.
    intros H. unfold count. apply sum_le. intros i Hi. specialize (H i Hi). destruct (P i); [rewrite H by reflexivity; lia|destruct (Q i); lia].
  Qed.

  Lemma sum_lt m f g a : a < m -> f a < g a -> (forall i, i < m -> f i <= g i) -> sum m f < sum m g.
  Proof.
    induction m as [|m IH]; intros Ha L H; [lia|]. simpl. destruct (Nat.eq_dec a m) as [->|D].
    - assert (sum m f <= sum m g) by (apply sum_le; intros; apply H; lia). lia.
    - assert (sum m f < sum m g) by (apply IH; auto; lia). specialize (H m ltac:(lia)). lia.
  Qed.

  Lemma count_lt m (P Q : nat -> bool) a : a < m -> P a = false -> Q a = true ->
    (forall i, i < m -> P i = true -> Q i = true) -> count m P < count m Q.
  Proof.
    intros Ha Pa Qa H. unfold count. apply (sum_lt m _ _ a Ha).
    - rewrite Pa, Qa. lia.
    - intros i Hi. specialize (H i Hi). destruct (P i); [rewrite H by reflexivity; lia|destruct (Q i); lia].
  Qed.

  Lemma after_positive left mate w i j : (0 <? after left mate w i j) = true -> (0 <? left i j) = true.
  Proof. unfold after. rewrite !Nat.ltb_lt. destruct (j =? mate i); lia. Qed.

  Lemma stage_less left time mate back w : fits left time -> is_stage left time mate back w ->
    busy (after left mate w) + idle (after left mate w) (time - w) < busy left + idle left time.
  Proof.
    intros F St. pose proof (stage_fits _ _ _ _ _ F St) as [Wt F']. destruct St as (M & W & A & i & Hi & T).
    destruct (M i Hi) as (Hj & _ & Bi & _). set (j := mate i) in *.
    assert (Busy : busy (after left mate w) <= busy left).
    { apply sum_le. intros k _. apply count_le. intros l _. apply after_positive. }
    assert (Rows : forall k, k < n -> time - w - row_of (after left mate w) k <= time - row_of left k).
    { intros k Hk. pose proof (row_after left mate back w k M Hk). pose proof (sent_le left mate w k). lia. }
    assert (Columns : forall k, k < n -> time - w - column_of (after left mate w) k <= time - column_of left k).
    { intros k Hk. pose proof (column_after left mate back w k M Hk). pose proof (sent_le left mate w (back k)). lia. }
    assert (Cr : count n (fun k => 0 <? time - w - row_of (after left mate w) k) <= count n (fun k => 0 <? time - row_of left k)).
    { apply count_le. intros k Hk. specialize (Rows k Hk). rewrite !Nat.ltb_lt. lia. }
    assert (Cc : count n (fun k => 0 <? time - w - column_of (after left mate w) k) <= count n (fun k => 0 <? time - column_of left k)).
    { apply count_le. intros k Hk. specialize (Columns k Hk). rewrite !Nat.ltb_lt. lia. }
    unfold idle. destruct (Nat.eq_dec (left i j) 0) as [Z|P].
    - (* the pair has no bytes: it idles, and one of its lines can no longer afford to *)
      assert (Ew : w = Nat.min (time - row_of left i) (time - column_of left j)) by (unfold able in T; fold j in T; lia).
      pose proof (row_after left mate back w i M Hi) as Er. pose proof (column_after left mate back w j M Hj) as Ec.
      rewrite Bi in Ec. assert (S0 : sent left mate w i = 0) by (unfold sent; fold j; lia). rewrite S0 in Er, Ec.
      destruct (le_lt_dec (time - row_of left i) (time - column_of left j)) as [L|L].
      + assert (count n (fun k => 0 <? time - w - row_of (after left mate w) k) < count n (fun k => 0 <? time - row_of left k)); [|lia].
        apply (count_lt n _ _ i Hi); [apply Nat.ltb_ge; lia|apply Nat.ltb_lt; lia|].
        intros k Hk. specialize (Rows k Hk). rewrite !Nat.ltb_lt. lia.
      + assert (count n (fun k => 0 <? time - w - column_of (after left mate w) k) < count n (fun k => 0 <? time - column_of left k)); [|lia].
        apply (count_lt n _ _ j Hj); [apply Nat.ltb_ge; lia|apply Nat.ltb_lt; lia|].
        intros k Hk. specialize (Columns k Hk). rewrite !Nat.ltb_lt. lia.
    - (* the pair has bytes, and loses the last of them *)
      assert (busy (after left mate w) < busy left); [|lia]. unfold busy. apply (sum_lt n _ _ i Hi).
      + apply (count_lt n _ _ j Hj); [|apply Nat.ltb_lt; lia|intros k _; apply after_positive].
        unfold after. fold j. rewrite Nat.eqb_refl. apply Nat.ltb_ge. unfold sent. fold j. unfold able in T. fold j in T. lia.
      + intros k _. apply count_le. intros l _. apply after_positive.
  Qed.

  Lemma run_less k left time : run k left time -> fits left time -> k <= busy left + idle left time.
  Proof.
    induction 1 as [|k left time mate back w St R IH]; intros F; [lia|].
    pose proof (stage_less _ _ _ _ _ F St). destruct (stage_fits _ _ _ _ _ F St) as [_ F']. specialize (IH F'). lia.
  Qed.

  (** ** Without spare time: no more than n^2 + n stages, whatever matchings are chosen *)
  Theorem T13_compact_exact : forall k demand time, fits demand time -> (forall i, i < n -> demand i i = 0) ->
    run k demand time -> k <= n * n + n.
  Proof.
    intros k demand time F D R. apply run_less in R; [|exact F].
    assert (B : busy demand <= n * (n - 1)).
    { unfold busy. apply sum_le_const. intros i Hi.
      assert (E : count n (fun j => 0 <? demand i j) + 1 <= n); [|lia].
      assert (E : count n (fun j => 0 <? demand i j) < count n (fun _ => true)).
      { apply (count_lt n _ _ i Hi); [rewrite (D i Hi); reflexivity|reflexivity|reflexivity]. }
      unfold count in E at 2. rewrite sum_const in E. lia. }
    assert (C : forall P, count n P <= n).
    { intros P. unfold count. rewrite <- (Nat.mul_1_r n) at 2. apply sum_le_const. intros i _. destruct (P i); lia. }
    unfold idle in R. pose proof (C (fun i => 0 <? time - row_of demand i)). pose proof (C (fun j => 0 <? time - column_of demand j)). nia.
  Qed.

  (** each stage lasts: no more stages than units of time *)
  Theorem T13_compact_time : forall k left time, fits left time -> run k left time -> k <= time.
  Proof.
    intros k left time F R. induction R as [|k left time mate back w St R IH]; [lia|].
    destruct (stage_fits _ _ _ _ _ F St) as [Wt F']. specialize (IH F'). destruct St as (_ & W & _). lia.
  Qed.

  (** ** With spare time: what is left is rounded up to slots *)

  Definition slots (slot x : nat) : nat := (x + (slot - 1)) / slot.

  Lemma slots_le slot x : 0 < slot -> slot * slots slot x <= x + (slot - 1) * (if 0 <? x then 1 else 0).
  Proof.
    intros H. unfold slots. destruct (Nat.ltb_spec 0 x) as [P|P].
    - rewrite Nat.mul_1_r. apply Nat.mul_div_le. lia.
    - assert (x = 0) by lia. subst x. rewrite Nat.div_small by lia. lia.
  Qed.

  Lemma line_slots slot (f : nat -> nat) a : 0 < slot -> a < n -> f a = 0 ->
    slot * sum n (fun j => slots slot (f j)) <= sum n f + (n - 1) * (slot - 1).
  Proof.
    intros H Ha Z. rewrite sum_mul.
    assert (L : sum n (fun j => slot * slots slot (f j)) <= sum n (fun j => f j + (slot - 1) * (if 0 <? f j then 1 else 0))).
    { apply sum_le. intros j _. now apply slots_le. }
    assert (E : sum n (fun j => f j + (slot - 1) * (if 0 <? f j then 1 else 0)) = sum n f + (slot - 1) * count n (fun j => 0 <? f j)).
    { rewrite (sum_add n f (fun j => (slot - 1) * (if 0 <? f j then 1 else 0))). unfold count. now rewrite sum_mul. }
    rewrite E in L.
    assert (C : count n (fun j => 0 <? f j) < count n (fun _ => true)).
    { apply (count_lt n _ _ a Ha); [rewrite Z; reflexivity|reflexivity|reflexivity]. }
    unfold count in C at 2. rewrite sum_const in C.
    assert (G : (slot - 1) * count n (fun j => 0 <? f j) <= (n - 1) * (slot - 1)) by (rewrite Nat.mul_comm; apply Nat.mul_le_mono_r; lia).
    lia.
  Qed.

  (** slots of spare / (n - 1) + 1 fit into time + spare: as many stages at most, and their number is at
      most (n - 1)(1 + time / spare) *)
  Theorem T13_compact_spare : forall left time spare slot count, 2 <= n -> fits left time -> (forall i, i < n -> left i i = 0) ->
    slot = spare / (n - 1) + 1 -> count = (time + spare) / slot ->
    fits (fun i j => slots slot (left i j)) count /\ count * spare <= (n - 1) * (time + spare).
  Proof.
    intros left time spare slot count N2 F D Es Ec. assert (S0 : 0 < slot) by lia.
    assert (Sp : (n - 1) * (slot - 1) <= spare) by (rewrite Es; replace (spare / (n - 1) + 1 - 1) with (spare / (n - 1)) by lia; apply Nat.mul_div_le; lia).
    split.
    - intros i Hi. destruct (F i Hi) as [R C]. split; rewrite Ec; apply Nat.div_le_lower_bound; try lia.
      + pose proof (line_slots slot (fun j => left i j) i S0 Hi (D i Hi)) as L. cbn beta in L. unfold row_of in *. lia.
      + pose proof (line_slots slot (fun k => left k i) i S0 Hi (D i Hi)) as L. cbn beta in L. unfold column_of in *. lia.
    - assert (A : slot * count <= time + spare) by (rewrite Ec; apply Nat.mul_div_le; lia).
      assert (B : spare <= (n - 1) * slot).
      { rewrite Es. pose proof (Nat.div_mod_eq spare (n - 1)) as E. pose proof (Nat.mod_upper_bound spare (n - 1) ltac:(lia)). nia. }
      nia.
  Qed.
End Compact.
