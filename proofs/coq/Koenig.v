(** * Koenig: a bipartite multigraph of maximum degree N has a proper N-edge-colouring

    Edges are added one at a time; where the free colours of the two ends differ, the
    alternating (Kempe) component of one end is recoloured first. *)
From Coq Require Import Arith Lia List Bool FinFun.
From Rails Require Import Sums.
Import ListNotations.

Lemma NoDup_map_inj {A B} (g : A -> B) l e1 e2 :
  NoDup (map g l) -> In e1 l -> In e2 l -> g e1 = g e2 -> e1 = e2.
Proof.
  induction l as [|a l IH]; simpl; intros H H1 H2 E; [easy|]. inversion_clear H as [|? ? Hn Hd].
  destruct H1 as [->|H1], H2 as [->|H2]; auto.
  - exfalso. apply Hn. rewrite E. now apply in_map.
  - exfalso. apply Hn. rewrite <- E. now apply in_map.
Qed.

Lemma filter_lt {A} (p q : A -> bool) l :
  (forall z, q z = true -> p z = true) ->
  (exists e, In e l /\ p e = true /\ q e = false) ->
  length (filter q l) < length (filter p l).
Proof.
  intros H [e [Hin [Hp Hq]]].
  assert (LE : forall l, length (filter q l) <= length (filter p l)).
  { induction l0 as [|a l0 IH]; simpl; auto. pose proof (H a).
    destruct (q a), (p a); simpl; try lia; now specialize (H0 eq_refl). }
  induction l as [|a l IH]; [easy|]. destruct Hin as [->|Hin]; simpl.
  - rewrite Hp, Hq. simpl. specialize (LE l). lia.
  - specialize (IH Hin). pose proof (H a). destruct (q a), (p a); simpl; try lia; now specialize (H0 eq_refl).
Qed.

Section Koenig.
  Context {T : Type} (eqT : forall x y : T, {x = y} + {x <> y}).
  Notation edge := ((T * T) * nat)%type.
  Definition uc (e : edge) : T * nat := (fst (fst e), snd e).
  Definition vc (e : edge) : T * nat := (snd (fst e), snd e).
  Definition proper (G : list edge) : Prop := NoDup (map uc G) /\ NoDup (map vc G).
  Definition eqb (x y : T) : bool := if eqT x y then true else false.
  Lemma eqb_eq x y : eqb x y = true <-> x = y.
  Proof. unfold eqb. destruct (eqT x y); intuition congruence. Qed.
  Definition ldeg (E : list (T * T)) (u : T) : nat := length (filter (fun e => eqb (fst e) u) E).
  Definition rdeg (E : list (T * T)) (v : T) : nat := length (filter (fun e => eqb (snd e) v) E).
  Lemma eqTc (x y : T * nat) : {x = y} + {x <> y}.
  Proof. decide equality; auto using Nat.eq_dec. Qed.

  (** the first free colour of a vertex; there is one if it has fewer than N edges *)
  Definition free (key : T * T -> T) (N : nat) (G : list edge) (u : T) : nat :=
    let cs := map snd (filter (fun e : edge => eqb (key (fst e)) u) G) in
    match find (fun a => negb (existsb (Nat.eqb a) cs)) (seq 0 N) with Some a => a | None => 0 end.
  Lemma free_colour (key : T * T -> T) N (G : list edge) u :
    length (filter (fun e => eqb (key e) u) (map fst G)) < N ->
    let a := free key N G u in
    a < N /\ ~ In (u, a) (map (fun e : edge => (key (fst e), snd e)) G).
  Proof.
    intros H. unfold free.
    set (cs := map snd (filter (fun e : edge => eqb (key (fst e)) u) G)).
    assert (L : length cs < N).
    { unfold cs. rewrite map_length. clear cs. revert H.
      assert (E : length (filter (fun e => eqb (key e) u) (map fst G)) =
                  length (filter (fun e : edge => eqb (key (fst e)) u) G)).
      { induction G as [|e G IH]; simpl; auto. destruct (eqb (key (fst e)) u); simpl; auto. }
      now rewrite E. }
    destruct (find (fun a => negb (existsb (Nat.eqb a) cs)) (seq 0 N)) as [a|] eqn:Fd.
    - apply find_some in Fd. destruct Fd as [Ha Hf]. apply in_seq in Ha.
      split; [lia|]. intros Hin. apply in_map_iff in Hin.
      destruct Hin as [e [Ee He]]. injection Ee as Eu Ea.
      apply negb_true_iff in Hf. rewrite <- not_true_iff_false, existsb_exists in Hf. apply Hf.
      exists a. split; [|apply Nat.eqb_refl]. unfold cs. apply in_map_iff. exists e.
      split; auto. apply filter_In. split; auto. now apply eqb_eq.
    - exfalso. assert (incl (seq 0 N) cs).
      { intros a Ha. pose proof (find_none _ _ Fd a Ha) as Hn. apply negb_false_iff in Hn.
        apply existsb_exists in Hn. destruct Hn as [b [Hb Eb]]. apply Nat.eqb_eq in Eb. now subst. }
      apply NoDup_incl_length in H0; [|apply seq_NoDup]. rewrite seq_length in H0. lia.
  Qed.

  (** the alternating component of v *)
  Section Kempe.
    Variables (G : list edge) (a b : nat) (v : T).
    Definition inv (SL SR : T -> bool) : Prop :=
      SR v = true /\
      (forall x, SL x = true -> exists y, SR y = true /\ In ((x, y), a) G) /\
      (forall y, SR y = true -> y = v \/ exists x, SL x = true /\ In ((x, y), b) G).
    Definition closed (SL SR : T -> bool) : Prop :=
      (forall x y, In ((x, y), a) G -> SR y = true -> SL x = true) /\
      (forall x y, In ((x, y), b) G -> SL x = true -> SR y = true).
    Definition add (S : T -> bool) (z : T) : T -> bool := fun t => eqb t z || S t.

    (* edges by which it goes on: of colour a to the left, of colour b to the right *)
    Definition badL (SL SR : T -> bool) (e : edge) : bool :=
      (snd e =? a) && SR (snd (fst e)) && negb (SL (fst (fst e))).
    Definition badR (SL SR : T -> bool) (e : edge) : bool :=
      (snd e =? b) && SL (fst (fst e)) && negb (SR (snd (fst e))).
    Fixpoint reach (steps : nat) (SL SR : T -> bool) : (T -> bool) * (T -> bool) :=
      match steps with
      | 0 => (SL, SR)
      | S steps =>
          match find (badL SL SR) G with
          | Some e => reach steps (add SL (fst (fst e))) SR
          | None =>
              match find (badR SL SR) G with
              | Some e => reach steps SL (add SR (snd (fst e)))
              | None => (SL, SR)
              end
          end
      end.
    Definition component : (T -> bool) * (T -> bool) :=
      reach (S (length G + length G)) (fun _ => false) (fun y => eqb y v).

    Lemma reach_ok : forall m SL SR, inv SL SR ->
      length (filter (fun e : edge => negb (SL (fst (fst e)))) G) +
      length (filter (fun e : edge => negb (SR (snd (fst e)))) G) < m ->
      inv (fst (reach m SL SR)) (snd (reach m SL SR)) /\ closed (fst (reach m SL SR)) (snd (reach m SL SR)).
    Proof.
      induction m as [|m IH]; intros SL SR (I1 & I2 & I3) Hm; [lia|]. cbn [reach].
      destruct (find (badL SL SR) G) as [[[x y] c]|] eqn:FL;
        [|destruct (find (badR SL SR) G) as [[[x y] c]|] eqn:FR]; cbn [fst snd].
      - apply find_some in FL. destruct FL as [Hin Hb]. unfold badL in Hb. simpl in Hb.
        apply andb_prop in Hb. destruct Hb as [Hb Hx]. apply andb_prop in Hb. destruct Hb as [Hc Hy].
        apply Nat.eqb_eq in Hc. subst c.
        apply (IH (add SL x) SR).
        + split; [auto|]. split.
          * intros z Hz. unfold add in Hz. apply orb_prop in Hz. destruct Hz as [Hz|Hz]; [|auto].
            apply eqb_eq in Hz. subst z. exists y. auto.
          * intros z Hz. destruct (I3 z Hz) as [->|[x' [Hx' Hi]]]; [auto|].
            right. exists x'. split; auto. unfold add. rewrite Hx'. apply orb_true_r.
        + assert (length (filter (fun e : edge => negb (add SL x (fst (fst e)))) G) <
                  length (filter (fun e : edge => negb (SL (fst (fst e)))) G)); [|lia].
          apply filter_lt.
          * intros z. unfold add. rewrite !negb_true_iff. intros Hz.
            apply orb_false_iff in Hz. tauto.
          * exists ((x, y), a). simpl. split; auto. split; auto. unfold add.
            apply negb_false_iff. apply orb_true_iff. left. now apply eqb_eq.
      - apply find_some in FR. destruct FR as [Hin Hb]. unfold badR in Hb. simpl in Hb.
        apply andb_prop in Hb. destruct Hb as [Hb Hy]. apply andb_prop in Hb. destruct Hb as [Hc Hx].
        apply Nat.eqb_eq in Hc. subst c.
        apply (IH SL (add SR y)).
        + split; [unfold add; rewrite I1; apply orb_true_r|]. split.
          * intros z Hz. destruct (I2 z Hz) as [y' [Hy' Hi]].
            exists y'. split; auto. unfold add. rewrite Hy'. apply orb_true_r.
          * intros z Hz. unfold add in Hz. apply orb_prop in Hz. destruct Hz as [Hz|Hz]; [|auto].
            apply eqb_eq in Hz. subst z. right. exists x. auto.
        + assert (length (filter (fun e : edge => negb (add SR y (snd (fst e)))) G) <
                  length (filter (fun e : edge => negb (SR (snd (fst e)))) G)); [|lia].
          apply filter_lt.
          * intros z. unfold add. rewrite !negb_true_iff. intros Hz.
            apply orb_false_iff in Hz. tauto.
          * exists ((x, y), b). simpl. split; auto. split; auto. unfold add.
            apply negb_false_iff. apply orb_true_iff. left. now apply eqb_eq.
      - split; [split; auto|]. split; intros x y Hin Hs.
        + pose proof (find_none _ _ FL _ Hin) as Hn. unfold badL in Hn. simpl in Hn.
          rewrite Nat.eqb_refl, Hs in Hn. simpl in Hn. now apply negb_false_iff.
        + pose proof (find_none _ _ FR _ Hin) as Hn. unfold badR in Hn. simpl in Hn.
          rewrite Nat.eqb_refl, Hs in Hn. simpl in Hn. now apply negb_false_iff.
    Qed.

    Lemma component_ok : inv (fst component) (snd component) /\ closed (fst component) (snd component).
    Proof.
      apply reach_ok.
      - split; [now apply eqb_eq|]. split; [discriminate|]. intros y Hy. left. now apply eqb_eq.
      - assert (LE : forall p (l : list edge), length (filter p l) <= length l).
        { intros p l. induction l as [|e l IH]; simpl; [lia|]. destruct (p e); simpl; lia. }
        pose proof (LE (fun _ => negb false) G).
        pose proof (LE (fun e => negb (eqb (snd (fst e)) v)) G). lia.
    Qed.

    Definition sw (c : nat) : nat := if c =? a then b else if c =? b then a else c.
    Lemma sw_inj c d : sw c = sw d -> c = d.
    Proof.
      unfold sw. destruct (Nat.eqb_spec c a), (Nat.eqb_spec c b),
        (Nat.eqb_spec d a), (Nat.eqb_spec d b); congruence.
    Qed.
    Lemma sw_lt N c : a < N -> b < N -> c < N -> sw c < N.
    Proof. unfold sw. destruct (c =? a), (c =? b); auto. Qed.
    Definition phi (S : T -> bool) (z : T * nat) : T * nat :=
      (fst z, if S (fst z) then sw (snd z) else snd z).
    Lemma phi_inj S : Injective (phi S).
    Proof.
      intros [x c] [y d]. unfold phi. simpl. intros E. injection E as -> E.
      destruct (S y); f_equal; auto using sw_inj.
    Qed.

    (** recolour so that a becomes free at v, keeping a free at u *)
    Definition recoloured : list edge :=
      let SL := fst component in
      map (fun e : edge => (fst e, if SL (fst (fst e)) then sw (snd e) else snd e)) G.
    Lemma kempe N u : proper G -> Forall (fun e => snd e < N) G -> a < N -> b < N ->
      ~ In (u, a) (map uc G) -> ~ In (v, b) (map vc G) ->
      let G' := recoloured in map fst G' = map fst G /\ proper G' /\ Forall (fun e => snd e < N) G' /\
        ~ In (u, a) (map uc G') /\ ~ In (v, a) (map vc G').
    Proof.
      intros [PU PV] FN Ha Hb Hu Hv. unfold recoloured.
      destruct component as [SL SR] eqn:Ec. pose proof component_ok as Ok. rewrite Ec in Ok.
      cbn [fst snd] in *. destruct Ok as ((I1 & I2 & I3) & (C1 & C2)). clear Ec.
      assert (HuL : SL u = false).
      { destruct (SL u) eqn:E; auto. exfalso. destruct (I2 u E) as [y [_ Hin]].
        apply Hu. apply in_map_iff. exists ((u, y), a). auto. }
      assert (BA : forall x y, In ((x, y), a) G -> SL x = true -> SR y = true).
      { intros x y Hin Hx. destruct (I2 x Hx) as [y' [Hy' Hin']].
        assert (E : ((x, y), a) = ((x, y'), a)) by
          (apply (NoDup_map_inj uc G); auto). injection E as ->. auto. }
      assert (BB : forall x y, In ((x, y), b) G -> SR y = true -> SL x = true).
      { intros x y Hin Hy. destruct (I3 y Hy) as [->|[x' [Hx' Hin']]].
        - exfalso. apply Hv. apply in_map_iff. exists ((x, v), b). auto.
        - assert (E : ((x, y), b) = ((x', y), b)) by
            (apply (NoDup_map_inj vc G); auto). injection E as ->. auto. }
      set (re := fun e : edge => (fst e, if SL (fst (fst e)) then sw (snd e) else snd e)).
      assert (RU : map uc (map re G) = map (phi SL) (map uc G)).
      { rewrite !map_map. apply map_ext. intros [[x y] c]. reflexivity. }
      assert (RV : map vc (map re G) = map (phi SR) (map vc G)).
      { rewrite !map_map. apply map_ext_in. intros [[x y] c] Hin.
        unfold vc, re, phi. simpl. f_equal.
        destruct (Nat.eq_dec c a) as [->|Na]; [|destruct (Nat.eq_dec c b) as [->|Nb]].
        - specialize (BA x y Hin). specialize (C1 x y Hin).
          destruct (SL x), (SR y); intuition congruence.
        - specialize (BB x y Hin). specialize (C2 x y Hin).
          destruct (SL x), (SR y); intuition congruence.
        - unfold sw. apply Nat.eqb_neq in Na, Nb. rewrite Na, Nb.
          destruct (SL x), (SR y); reflexivity. }
      cbv zeta. fold re. split; [|split; [|split; [|split]]].
      - rewrite map_map. apply map_ext. reflexivity.
      - split; [rewrite RU|rewrite RV]; apply Injective_map_NoDup; auto using phi_inj.
      - apply Forall_map. eapply Forall_impl; [|exact FN]. intros e He. simpl.
        destruct (SL (fst (fst e))); auto using sw_lt.
      - rewrite RU. intros Hin. apply in_map_iff in Hin. destruct Hin as [[x c] [E Hin]].
        unfold phi in E. simpl in E. injection E as -> E. rewrite HuL in E. subst c. auto.
      - rewrite RV. intros Hin. apply in_map_iff in Hin. destruct Hin as [[x c] [E Hin]].
        unfold phi in E. simpl in E. injection E as -> E. rewrite I1 in E.
        assert (c = b) as ->; [|auto]. apply sw_inj. rewrite E. unfold sw.
        destruct (Nat.eqb_spec b a) as [Eb|Nb]; [auto|now rewrite Nat.eqb_refl].
    Qed.
  End Kempe.

  (** edge by edge, the last one first *)
  Fixpoint colouring (N : nat) (E : list (T * T)) : list edge :=
    match E with
    | [] => []
    | e :: E =>
        let G := colouring N E in
        let a := free fst N G (fst e) in
        (e, a) :: recoloured G a (free snd N G (snd e)) (snd e)
    end.

  Lemma colouring_ok : forall N (E : list (T * T)),
    (forall u, ldeg E u <= N) -> (forall v, rdeg E v <= N) ->
    let G := colouring N E in map fst G = E /\ proper G /\ Forall (fun e => snd e < N) G.
  Proof.
    intros N E. induction E as [|[u v] E IH]; intros HL HR.
    - repeat split; constructor.
    - destruct IH as (EG & PG & FG).
      + intros z. specialize (HL z). unfold ldeg in *. simpl in HL.
        destruct (eqb u z); simpl in HL; lia.
      + intros z. specialize (HR z). unfold rdeg in *. simpl in HR.
        destruct (eqb v z); simpl in HR; lia.
      + assert (Lu : ldeg E u < N).
        { specialize (HL u). unfold ldeg in *. simpl in HL.
          rewrite (proj2 (eqb_eq u u) eq_refl) in HL. simpl in HL. lia. }
        assert (Lv : rdeg E v < N).
        { specialize (HR v). unfold rdeg in *. simpl in HR.
          rewrite (proj2 (eqb_eq v v) eq_refl) in HR. simpl in HR. lia. }
        cbn [colouring fst snd]. set (G := colouring N E) in *.
        unfold ldeg in Lu. unfold rdeg in Lv. rewrite <- EG in Lu, Lv.
        destruct (free_colour fst N G u Lu) as (Ha & Fa). destruct (free_colour snd N G v Lv) as (Hb & Fb).
        set (a := free fst N G u) in *. set (b := free snd N G v) in *.
        destruct (kempe G a b v N u PG FG Ha Hb Fa Fb) as (EG' & [PU PV] & FG' & Fu & Fv).
        cbv zeta. split; [|split; [split|]].
        * simpl. congruence.
        * simpl. constructor; auto.
        * simpl. constructor; auto.
        * constructor; auto.
  Qed.

  (** Koenig: a bipartite multigraph of maximum degree <= N is N-edge-colourable *)
  Theorem Koenig : forall N (E : list (T * T)),
    (forall u, ldeg E u <= N) -> (forall v, rdeg E v <= N) ->
    exists G, map fst G = E /\ proper G /\ Forall (fun e => snd e < N) G.
  Proof. intros N E HL HR. exists (colouring N E). now apply colouring_ok. Qed.
End Koenig.
