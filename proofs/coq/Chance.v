(** * T4f: random start rails, by moments

    Every flow deals its chunks out one rail after the other, from a start rail of its own.  Of the
    N starts, a rail gets one chunk more for exactly [r], the flow's chunks modulo N.  Counted over
    all N^s choices of starts, squares of deviations add up as if flows were alone. *)
From Coq Require Import ZArith Arith Lia List Bool Permutation.
Import ListNotations.
Open Scope Z_scope.

Definition zsum (l : list Z) : Z := fold_right Z.add 0 l.

(** all choices of a start rail for each of [s] flows *)
Fixpoint choices (N s : nat) : list (list nat) :=
  match s with O => [[]] | S s => flat_map (fun a => map (cons a) (choices N s)) (seq 0 N) end.

(** what a rail gets above its share, N times, flow by flow *)
Fixpoint deviation (fs : list (nat -> Z)) (c : list nat) : Z :=
  match fs, c with f :: fs, a :: c => f a + deviation fs c | _, _ => 0 end.

Definition over (N : nat) (f : nat -> Z) : Z := zsum (map f (seq 0 N)).

Lemma zsum_app l m : zsum (l ++ m) = zsum l + zsum m.
Proof. induction l as [|x l IH]; simpl; lia. Qed.

Lemma zsum_add {A} (f g : A -> Z) l : zsum (map (fun x => f x + g x) l) = zsum (map f l) + zsum (map g l).
Proof. induction l as [|x l IH]; simpl; lia. Qed.

Lemma zsum_mul {A} k (f : A -> Z) l : zsum (map (fun x => k * f x) l) = k * zsum (map f l).
Proof. induction l as [|x l IH]; simpl; lia. Qed.

Lemma zsum_const {A} k (l : list A) : zsum (map (fun _ => k) l) = Z.of_nat (length l) * k.
Proof. induction l as [|x l IH]; [reflexivity|]. cbn [map zsum fold_right length]. fold (zsum (map (fun _ : A => k) l)). rewrite IH. lia. Qed.

Lemma zsum_ext {A} (f g : A -> Z) l : (forall x, f x = g x) -> zsum (map f l) = zsum (map g l).
Proof. intros H. f_equal. apply map_ext. exact H. Qed.

Lemma over_choices N s (g : list nat -> Z) :
  zsum (map g (choices N (S s))) = over N (fun a => zsum (map (fun c => g (a :: c)) (choices N s))).
Proof.
  unfold over. cbn [choices]. induction (seq 0 N) as [|a l IH]; [reflexivity|]. cbn [flat_map map zsum fold_right].
  rewrite map_app, zsum_app, map_map. unfold zsum in *. rewrite IH. reflexivity.
Qed.

Lemma choices_length N s : length (choices N s) = (N ^ s)%nat.
Proof.
  induction s as [|s IH]; [reflexivity|]. cbn [choices Nat.pow].
  assert (G : forall l : list nat, length (flat_map (fun a => map (cons a) (choices N s)) l) = (length l * N ^ s)%nat).
  { induction l as [|a l IHl]; [reflexivity|]. cbn [flat_map length]. rewrite app_length, map_length, IH, IHl. lia. }
  now rewrite G, seq_length.
Qed.

(** deviations add up to nothing, and their squares as if flows were alone *)
Lemma moments N fs : Forall (fun f => over N f = 0) fs ->
  zsum (map (deviation fs) (choices N (length fs))) = 0 /\
  Z.of_nat N * zsum (map (fun c => deviation fs c * deviation fs c) (choices N (length fs)))
    = Z.of_nat (N ^ length fs) * zsum (map (fun f => over N (fun a => f a * f a)) fs).
Proof.
  induction 1 as [|f fs Z F [M1 M2]].
  - cbn. lia.
  - cbn [length]. rewrite !over_choices. cbn [deviation]. set (cs := choices N (length fs)) in *.
    pose proof (choices_length N (length fs)) as L. fold cs in L.
    assert (E1 : forall a, zsum (map (fun c => f a + deviation fs c) cs) = Z.of_nat (N ^ length fs) * f a).
    { intros a. rewrite (zsum_add (fun _ => f a) (deviation fs)), zsum_const, M1, L. lia. }
    assert (E2 : forall a, zsum (map (fun c => (f a + deviation fs c) * (f a + deviation fs c)) cs)
      = Z.of_nat (N ^ length fs) * (f a * f a) + zsum (map (fun c => deviation fs c * deviation fs c) cs)).
    { intros a. rewrite (zsum_ext _ (fun c => (f a * f a + 2 * f a * deviation fs c) + deviation fs c * deviation fs c)) by (intros; lia).
      rewrite (zsum_add (fun c => f a * f a + 2 * f a * deviation fs c)), (zsum_add (fun _ => f a * f a)), zsum_const, zsum_mul, M1, L. lia. }
    unfold over in *. rewrite (zsum_ext _ _ _ E1), (zsum_ext _ _ _ E2). split.
    + rewrite zsum_mul, Z. lia.
    + rewrite zsum_add, zsum_mul, zsum_const, seq_length. cbn [map zsum fold_right Nat.pow]. unfold zsum in *.
      rewrite Nat2Z.inj_mul. rewrite Z.mul_add_distr_l, M2. lia.
Qed.

(** few choices are far off *)
Lemma far_choices {A} (g : A -> Z) (t : Z) l : 0 <= t ->
  Z.of_nat (length (filter (fun x => t <=? Z.abs (g x)) l)) * (t * t) <= zsum (map (fun x => g x * g x) l).
Proof.
  intros T. induction l as [|x l IH]; [cbn; lia|]. cbn [filter map zsum fold_right]. fold (zsum (map (fun x => g x * g x) l)).
  pose proof (Z.square_nonneg (g x)) as Q. destruct (Z.leb_spec t (Z.abs (g x))) as [H|H]; [|lia].
  cbn [length]. assert (t * t <= g x * g x) by nia. lia.
Qed.

(** a flow of which [r] of the N starts give the rail one chunk more: [extra] is 1 for these *)
Definition deals (N : nat) (r : Z) (extra : nat -> Z) : Prop := (forall a, extra a = 0 \/ extra a = 1) /\ over N extra = r.
Definition off (N : nat) (x : Z * (nat -> Z)) : nat -> Z := fun a => Z.of_nat N * snd x a - fst x.

Lemma off_moments N r extra : deals N r extra ->
  over N (off N (r, extra)) = 0 /\ over N (fun a => off N (r, extra) a * off N (r, extra) a) = Z.of_nat N * (r * (Z.of_nat N - r)).
Proof.
  intros [B E]. unfold off, over in *. cbn [fst snd]. split.
  - rewrite (zsum_ext _ (fun a => Z.of_nat N * extra a + - r)) by (intros; lia).
    rewrite zsum_add, zsum_mul, zsum_const, seq_length, E. lia.
  - rewrite (zsum_ext _ (fun a => (Z.of_nat N * Z.of_nat N - 2 * Z.of_nat N * r) * extra a + r * r)).
    + rewrite zsum_add, zsum_mul, zsum_const, seq_length, E. lia.
    + intros a. destruct (B a) as [-> | ->]; lia.
Qed.

(** of all choices of starts, those that leave a rail t or more chunks off its share are no more than
    s / (4 t^2) of them *)
Theorem T4_moments : forall N (flows : list (Z * (nat -> Z))) t, (0 < N)%nat -> 0 <= t ->
  Forall (fun x => deals N (fst x) (snd x)) flows ->
  let far := filter (fun c => Z.of_nat N * t <=? Z.abs (deviation (map (off N) flows) c)) (choices N (length flows)) in
  4 * Z.of_nat (length far) * (t * t) <= Z.of_nat (length flows) * Z.of_nat (N ^ length flows).
Proof.
  intros N flows t HN T F far.
  assert (Z0 : Forall (fun f => over N f = 0) (map (off N) flows)).
  { apply Forall_map. eapply Forall_impl; [|exact F]. intros [r extra] D. now apply off_moments. }
  pose proof (moments N (map (off N) flows) Z0) as [_ M]. rewrite map_length, map_map in M.
  assert (V : 4 * zsum (map (fun x => over N (fun a => off N x a * off N x a)) flows)
    <= Z.of_nat (length flows) * (Z.of_nat N * (Z.of_nat N * Z.of_nat N))).
  { clear M Z0 far. induction F as [|[r extra] flows D F IH]; [cbn; lia|]. cbn [map zsum fold_right length].
    fold (zsum (map (fun x => over N (fun a => off N x a * off N x a)) flows)).
    destruct (off_moments N r extra D) as [_ E]. rewrite E.
    pose proof (Z.square_nonneg (Z.of_nat N - 2 * r)) as Q. nia. }
  pose proof (far_choices (deviation (map (off N) flows)) (Z.of_nat N * t) (choices N (length flows)) ltac:(nia)) as C.
  fold far in C. set (S2 := zsum (map (fun c => deviation (map (off N) flows) c * _) _)) in *.
  set (k := Z.of_nat (length far)) in *. set (P := Z.of_nat (N ^ length flows)) in *. set (n := Z.of_nat N) in *.
  set (W := zsum (map (fun x => over N (fun a => off N x a * off N x a)) flows)) in *.
  assert (n0 : 0 < n) by (unfold n; lia). assert (P0 : 0 <= P) by (unfold P; lia).
  assert (A : 4 * (n * S2) <= P * (Z.of_nat (length flows) * (n * (n * n)))) by (rewrite M; nia).
  assert (B : 4 * S2 <= P * Z.of_nat (length flows) * (n * n)) by (apply (Zmult_le_reg_r _ _ n); [lia|]; lia).
  apply (Zmult_le_reg_r _ _ (n * n)); [nia|]. nia.
Qed.

(** ** Round robin deals so: from start [a], rail [n] gets one chunk more if it is one of the next [r] *)

Definition next (N n a : nat) : nat := ((n + N - a) mod N)%nat.

Lemma next_below N n a : (n < N)%nat -> (a <= n)%nat -> next N n a = (n - a)%nat.
Proof.
  intros Hn Ha. unfold next. replace (n + N - a)%nat with (n - a + 1 * N)%nat by lia.
  rewrite Nat.mod_add by lia. apply Nat.mod_small. lia.
Qed.

Lemma next_above N n a : (n < N)%nat -> (n < a < N)%nat -> next N n a = (n + N - a)%nat.
Proof. intros Hn Ha. apply Nat.mod_small. lia. Qed.

Lemma next_twice N n a : (n < N)%nat -> (a < N)%nat -> (next N n a < N)%nat /\ next N n (next N n a) = a.
Proof.
  intros Hn Ha. destruct (le_lt_dec a n) as [H|H].
  - rewrite (next_below N n a) by assumption. split; [lia|]. rewrite next_below by lia. lia.
  - rewrite (next_above N n a) by lia. split; [lia|]. rewrite next_above by lia. lia.
Qed.

Lemma zsum_perm l m : Permutation l m -> zsum l = zsum m.
Proof. induction 1; simpl; lia. Qed.

Theorem T4_round_robin : forall N n r, (n < N)%nat -> (r <= N)%nat ->
  deals N (Z.of_nat r) (fun a => if (next N n a <? r)%nat then 1 else 0).
Proof.
  intros N n r Hn Hr. split; [intros a; destruct (next N n a <? r)%nat; auto|]. unfold over.
  rewrite <- (map_map (next N n) (fun b => if (b <? r)%nat then 1 else 0)).
  assert (P : Permutation (seq 0 N) (map (next N n) (seq 0 N))).
  { apply NoDup_Permutation_bis; [apply seq_NoDup|rewrite map_length; lia|]. intros b Hb. apply in_seq in Hb.
    destruct (next_twice N n b Hn ltac:(lia)) as [A B]. rewrite <- B. apply in_map, in_seq. lia. }
  rewrite <- (zsum_perm _ _ (Permutation_map _ P)). clear P Hn.
  replace N with (r + (N - r))%nat by lia. rewrite seq_app, map_app, zsum_app.
  assert (A : forall k s, (s + k <= r)%nat -> zsum (map (fun b => if (b <? r)%nat then 1 else 0) (seq s k)) = Z.of_nat k).
  { induction k as [|k IH]; intros s H; [reflexivity|]. cbn [seq map zsum fold_right]. fold (zsum (map (fun b => if (b <? r)%nat then 1 else 0) (seq (S s) k))).
    rewrite IH by lia. destruct (Nat.ltb_spec s r); lia. }
  assert (B : forall k s, (r <= s)%nat -> zsum (map (fun b => if (b <? r)%nat then 1 else 0) (seq s k)) = 0).
  { induction k as [|k IH]; intros s H; [reflexivity|]. cbn [seq map zsum fold_right]. fold (zsum (map (fun b => if (b <? r)%nat then 1 else 0) (seq (S s) k))).
    rewrite IH by lia. destruct (Nat.ltb_spec s r); lia. }
  rewrite A, B by lia. lia.
Qed.
