(** The checker: computes what a certificate must say, and compares. [check_sound] is the theorem that all is for. *)

From Coq Require Import QArith Qminmax Lqa.
From LinfDist Require Export Rational Range.
Local Open Scope Z_scope.

Inductive method := ByMargin | ByBox.

(** What a certificate says, apart from the hashes, which the reader compares. *)
Record certificate := Certificate {
  its_class : nat;
  its_margin : Z;
  its_method : method;
  its_radius : Q;    (* in levels *)
  its_levels : Z;
}.

(** ** Whether a file is a network: the numbers in its header, and all layers over the whole domain *)

Definition domain_valid (net : network) : bool :=
  let '(c, h, w) := shape net in
  (length (domain net) =? c * h * w)%nat &&
  forallb (fun r => (0 <=? fst r) && (fst r <=? snd r) && (snd r <=? 255)) (domain net).

Definition sizes_valid (net : network) : bool :=
  let '(c, h, w) := shape net in
  let side := match crop_to net with Some side => side | None => Nat.min h w end in
  let outputs := length (last (map neurons (layers net)) []) in
  let most := 255 * 2 ^ Z.of_nat (scale net) in
  (scale net <=? 7)%nat && (1 <=? side)%nat && (side <=? Nat.min h w)%nat &&
  match clip_to net with
  | Some (low, high) => (0 <=? low) && (low <=? high) && (high <=? most)
  | None => true
  end &&
  match pool_by net with
  | Some (sizes, steps) =>
      (most * Z.pos steps <=? limit 32) &&
      forallb (fun s => (1 <=? s)%nat && (s <=? side)%nat && (Z.pos steps mod Z.of_nat (s * s) =? 0)) sizes
  | None => true
  end &&
  match per_class net with
  | Some count => (2 <=? count)%nat && (outputs mod count =? 0)%nat && (2 <=? outputs / count)%nat
  | None => (2 <=? outputs)%nat
  end.

Definition network_valid (net : network) : bool :=
  domain_valid net && sizes_valid net && run_valid (stages net) (domain net).

(** ** Whether a certificate of an image is right *)

Inductive reason :=
  | OutsideDomain
  | FewClasses
  | WrongClass (is : nat)
  | WrongMargin (is : Z)
  | WrongLevels (least most : Z)
  | NotProved
  | ProvesMore
  | WrongRadius (is : Q).

Inductive verdict := Proved | Refused (why : reason).

Fixpoint in_box (b : box) (x : vec) : bool :=
  match b, x with
  | [], [] => true
  | r :: b, a :: x => (fst r <=? a) && (a <=? snd r) && in_box b x
  | _, _ => false
  end.

(** The largest n ≤ 255 with 2 · steps · n < margin, or 0. *)
Definition margin_levels (net : network) (m : Z) : Z := Z.min 255 (Z.max 0 (m - 1) / (2 * steps net)).

(** The radius that the margin proves: margin / (2 · steps). *)
Definition margin_radius (net : network) (m : Z) : Q := Qred (inject_Z m / inject_Z (2 * steps net)).

(** Whether ranges prove class c for all images of the domain within n levels. *)
Definition proves (net : network) (x : vec) (c : nat) (n : Z) : bool :=
  holds c (run_box (stages net) (ball n (domain net) x)).

Definition same_q (a b : Q) : bool := (Qnum a =? Qnum b) && (Qden a =? Qden b)%positive.

Definition judge (net : network) (x : vec) (cert : certificate) : verdict :=
  let z := logits net x in
  let c := argmax Z.ltb z in
  let m := margin c z in
  let n := margin_levels net m in
  let levels := its_levels cert in
  if negb (in_box (domain net) x) then Refused OutsideDomain else
  if (length z <? 2)%nat || negb (c <? length z)%nat then Refused FewClasses else
  if negb (its_class cert =? c)%nat then Refused (WrongClass c) else
  if negb (its_margin cert =? m) then Refused (WrongMargin m) else
  match its_method cert with
  | ByMargin =>
      if negb (levels =? n) then Refused (WrongLevels n n) else
      if negb (same_q (its_radius cert) (margin_radius net m)) then Refused (WrongRadius (margin_radius net m)) else
      Proved
  | ByBox =>
      if (levels <? n) || (255 <? levels) then Refused (WrongLevels n 255) else
      if (n <? levels) && negb (proves net x c levels) then Refused NotProved else
      if (levels <? 255) && proves net x c (levels + 1) then Refused ProvesMore else
      if negb (same_q (its_radius cert) (inject_Z levels)) then Refused (WrongRadius (inject_Z levels)) else
      Proved
  end.

Definition check (net : network) (x : vec) (cert : certificate) : bool :=
  network_valid net && match judge net x cert with Proved => true | Refused _ => false end.

(** ** Soundness *)

(** What a certificate of image x claims about 8-bit images of the domain … *)
Definition claim (net : network) (x : vec) (cert : certificate) : Prop :=
  forall y, in_domain net y -> close (its_levels cert) x y -> class_of net y = its_class cert.

(** … and about images of rational pixels: the margin within the open ball of its radius, inside the domain or not; the
    box within the closed ball, inside the domain. *)
Definition claimQ (net : network) (x : vec) (cert : certificate) : Prop :=
  match its_method cert with
  | ByMargin => forall y d, (0 <= d)%Q -> (d < its_radius cert)%Q -> closeQ d x y -> class_ofQ net y = its_class cert
  | ByBox => forall y, insideQ (domain net) y -> closeQ (its_radius cert) x y -> class_ofQ net y = its_class cert
  end.

Lemma in_box_inside : forall b x, in_box b x = true -> inside b x.
Proof.
  induction b as [|r b IH]; intros [|a x] H; cbn in H; try discriminate; constructor.
  - apply andb_prop in H as [H _]. apply andb_prop in H as [H1 H2]. apply Z.leb_le in H1, H2. split; assumption.
  - apply andb_prop in H as [_ H]. apply IH, H.
Qed.

Lemma steps_nonneg : forall net, 0 <= steps net.
Proof. intros. apply stretches_nonneg. Qed.

Lemma margin_levels_enough : forall net m, 0 <= margin_levels net m /\
  (margin_levels net m = 0 \/ 2 * steps net * margin_levels net m < m).
Proof.
  intros net m. pose proof (steps_nonneg net) as Hs. unfold margin_levels.
  destruct (Z.eq_dec (steps net) 0) as [E|E].
  - rewrite E, Z.mul_0_r, Zdiv_0_r. cbn. lia.
  - assert (H : 0 <= Z.max 0 (m - 1) / (2 * steps net)) by (apply Z.div_pos; lia). split; [lia|].
    pose proof (Z.mul_div_le (Z.max 0 (m - 1)) (2 * steps net) ltac:(lia)) as Hd.
    destruct (Z.le_gt_cases m 0) as [Hm|Hm].
    + left. rewrite Z.max_l, Z.div_0_l by lia. lia.
    + right. assert (2 * steps net * Z.min 255 (Z.max 0 (m - 1) / (2 * steps net)) <=
        2 * steps net * (Z.max 0 (m - 1) / (2 * steps net))) by (apply Z.mul_le_mono_nonneg_l; lia). lia.
Qed.

(** A rational image that is an 8-bit image has the same class, ties and all. *)
Lemma leader_same : forall z q i best t u, (u == to_q t)%Q -> Forall2 (fun a p => (p == to_q a)%Q) z q ->
  leader lessQ i best u q = leader Z.ltb i best t z.
Proof.
  intros z q i best t u Ht H. revert i best t u Ht. induction H as [|a p z q Ha _ IH]; intros; cbn; [reflexivity|].
  assert (E : lessQ u p = (t <? a)).
  { apply eq_true_iff_eq. rewrite lessQ_spec, Z.ltb_lt, Ht, Ha. unfold to_q. rewrite <- Zlt_Qlt. reflexivity. }
  rewrite E. destruct (t <? a); apply IH; assumption.
Qed.

Theorem class_ofQ_extends_class_of : forall net x y, closeQ 0 x y -> class_ofQ net y = class_of net x.
Proof.
  intros net x y H. apply (runQ_near (stages net) 0 x y ltac:(lra)) in H.
  unfold class_ofQ, class_of, logitsQ, logits.
  assert (E : Forall2 (fun a p => (p == to_q a)%Q) (map Z.opp (run (stages net) x)) (map Qopp (runQ (stages net) y))).
  { eapply Forall2_map; [|exact H]. unfold near_int. intros a p Ha. unfold to_q in *. rewrite inject_Z_opp.
    cbn beta. lra. }
  destruct E as [|a p z q Ha E]; [reflexivity|]. cbn. apply leader_same; assumption.
Qed.

Lemma inside_ballQ : forall domain n x y,
  inside domain x -> insideQ domain y -> closeQ (to_q n) x y -> insideQ (ball n domain x) y.
Proof.
  induction domain as [|r domain IH]; intros n x y Hx Hy Hc.
  - inversion Hx; subst. inversion Hy; subst. constructor.
  - inversion Hx as [|? a ? x' Ha Hx']; subst. inversion Hy as [|? b ? y' Hb Hy']; subst.
    inversion Hc as [|? ? ? ? Hab Hc']; subst. cbn. constructor; [|apply IH; assumption].
    unfold in_rangeQ, near_int in *. cbn [fst snd].
    rewrite to_q_max, to_q_min, to_q_sub, to_q_add. split.
    + apply Q.max_lub; lra.
    + apply Q.min_glb; lra.
Qed.

Ltac branch H := match type of H with (if ?t then _ else _) = _ => destruct t eqn:?; [discriminate H|] end.

(** What the margin proves. *)
Lemma margin_sound : forall net x c n y, c = class_of net x -> (c < length (logits net x))%nat ->
  n = margin_levels net (margin c (logits net x)) -> close n x y -> class_of net y = c.
Proof.
  intros net x c n y Hc Hl -> Hy. destruct (margin_levels_enough net (margin c (logits net x))) as [H0 [H|H]].
  - rewrite H in Hy. apply close_zero in Hy. subst. reflexivity.
  - eapply margin_keeps_class; eassumption.
Qed.

Lemma margin_soundQ : forall net x c n y, c = class_of net x -> (c < length (logits net x))%nat ->
  n = margin_levels net (margin c (logits net x)) -> closeQ (to_q n) x y -> class_ofQ net y = c.
Proof.
  intros net x c n y Hc Hl -> Hy. destruct (margin_levels_enough net (margin c (logits net x))) as [H0 [H|H]].
  - rewrite H in Hy. rewrite Hc. apply class_ofQ_extends_class_of. exact Hy.
  - eapply margin_keeps_classQ; try eassumption.
    + apply (to_q_le 0). exact H0.
    + change (2%Q) with (to_q 2). rewrite <- !to_q_mul. unfold to_q. rewrite <- Zlt_Qlt. exact H.
Qed.

(** The radius of the margin is what can be allowed for. *)
Lemma margin_radius_enough : forall net m d, (0 <= d)%Q -> (d < margin_radius net m)%Q ->
  (2 * to_q (steps net) * d < to_q m)%Q.
Proof.
  intros net m d Hd. unfold margin_radius. rewrite Qred_correct. pose proof (steps_nonneg net) as Hs.
  destruct (Z.eq_dec (steps net) 0) as [E|E].
  - rewrite E. cbn [Z.mul]. intros H. exfalso. unfold Qdiv in H. setoid_replace (/ inject_Z 0)%Q with 0%Q in H by reflexivity. lra.
  - intros H. assert (Hp : (0 < to_q (2 * steps net))%Q) by (unfold to_q; change 0%Q with (inject_Z 0); rewrite <- Zlt_Qlt; lia).
    apply (Qmult_lt_compat_r _ _ (to_q (2 * steps net)) Hp) in H.
    unfold Qdiv in H. rewrite <- Qmult_assoc, (Qmult_comm (/ _)), Qmult_inv_r in H by (intros E'; fold (to_q (2 * steps net)) in E'; lra).
    rewrite to_q_mul in H. change (to_q 2) with 2%Q in H. unfold to_q in *. lra.
Qed.

Theorem judge_sound : forall net x cert, judge net x cert = Proved ->
  in_domain net x /\ class_of net x = its_class cert /\ claim net x cert /\ claimQ net x cert.
Proof.
  intros net x cert H. unfold judge in H.
  set (z := logits net x) in *. set (c := argmax Z.ltb z) in *. set (m := margin c z) in *.
  branch H. apply negb_false_iff, in_box_inside in Heqb.
  branch H. apply orb_false_iff in Heqb0 as [_ Hl]. apply negb_false_iff, Nat.ltb_lt in Hl.
  branch H. apply negb_false_iff, Nat.eqb_eq in Heqb0.
  branch H. clear Heqb1.
  assert (Hc : c = class_of net x) by reflexivity.
  split; [exact Heqb|]. split; [rewrite Heqb0; reflexivity|].
  unfold claim, claimQ. rewrite Heqb0.
  assert (same : forall p q, same_q p q = true -> p = q).
  { intros [pn pd] [qn qd] Hs. unfold same_q in Hs. apply andb_prop in Hs as [H1 H2]. cbn in *.
    apply Z.eqb_eq in H1. apply Pos.eqb_eq in H2. subst. reflexivity. }
  destruct (its_method cert).
  - branch H. apply negb_false_iff, Z.eqb_eq in Heqb1. branch H. apply negb_false_iff, same in Heqb2. split.
    + intros y _ Hy. eapply margin_sound; eauto.
    + intros y d Hd Hr Hy. rewrite Heqb2 in Hr. apply (margin_keeps_classQ net x c d y Hl Hd); [|exact Hy].
      apply margin_radius_enough; assumption.
  - branch H. apply orb_false_iff in Heqb1 as [Hn _]. apply Z.ltb_ge in Hn. branch H. branch H. clear Heqb2.
    branch H. apply negb_false_iff, same in Heqb2. rewrite Heqb2.
    destruct (Z.ltb_spec (margin_levels net m) (its_levels cert)) as [Hlt|Hge]; cbn in Heqb1.
    + apply negb_false_iff in Heqb1. unfold proves in Heqb1. split.
      * intros y Hy Hclose. eapply box_keeps_class; [exact Heqb1 | apply inside_ball; assumption].
      * intros y Hy Hclose. eapply box_keeps_classQ; [exact Heqb1 | apply inside_ballQ; assumption].
    + assert (E : its_levels cert = margin_levels net m) by lia. split.
      * intros y _ Hy. eapply margin_sound; eauto.
      * intros y _ Hy. eapply margin_soundQ; eauto.
Qed.

(** Soundness of the checker. If it says yes, then
    - the image is in the domain, and has the class that the certificate says;
    - every 8-bit image of the domain within [its_levels] has this class;
    - every rational image closer than [its_radius] has it (margin), or every rational image of the domain that is not
      further than [its_radius] (box);
    - on every image of the domain, the network computes the same in wrapping integers of the widths in the file. *)
Theorem check_sound : forall net x cert, check net x cert = true ->
  in_domain net x /\ class_of net x = its_class cert /\ claim net x cert /\ claimQ net x cert /\
  forall y, in_domain net y -> machine_run (stages net) y = run (stages net) y.
Proof.
  intros net x cert H. unfold check in H. apply andb_prop in H as [Hv H].
  destruct (judge net x cert) eqn:E; [|discriminate]. apply judge_sound in E as (H1 & H2 & H3 & H4).
  repeat split; try assumption. intros y Hy. unfold network_valid in Hv. apply andb_prop in Hv as [_ Hv].
  exact (nothing_overflows _ _ _ Hv Hy).
Qed.
