(** Images of rational pixels: what is between the 8-bit images.

    The same network over the rationals. An integer a and a rational q are [near_int d a q] if they are at most d apart. *)

From Coq Require Import QArith Qabs Qminmax Lqa Setoid.
From LinfDist Require Export Margin.
Local Open Scope Q_scope.

Definition qvec := list Q.
Definition to_q (a : Z) : Q := inject_Z a.

(** ** The network over the rationals *)

Fixpoint distQ (w : row) (x : qvec) : Q :=
  match w, x with
  | Some w0 :: w, x0 :: x => Qmax (Qabs (x0 - to_q w0)) (distQ w x)
  | None :: w, _ :: x => distQ w x
  | _, _ => 0
  end.

Definition fireQ (n : neuron) (x : qvec) : Q := distQ (weights n) x + to_q (bias n).
Definition totalQ (x : qvec) : Q := fold_right Qplus 0 x.

Definition stage_outQ (s : stage) (x : qvec) : qvec :=
  match s with
  | Scale k => map (Qmult (to_q (2 ^ Z.of_nat k))) x
  | Crop c h w side => crop c h w side x
  | Clip low high => map (fun a => Qmin (Qmax a (to_q low)) (to_q high)) x
  | Pool c h w sizes steps =>
      flat_map (fun s => map (fun block => to_q (pool_weight steps s) * totalQ block) (blocks c h w s x)) sizes
  | Dist l => map (fun n => fireQ n x) (neurons l)
  | Sum count => map totalQ (pieces (length x / count) count x)
  end.

Fixpoint runQ (stages : list stage) (x : qvec) : qvec :=
  match stages with
  | [] => x
  | s :: stages => runQ stages (stage_outQ s x)
  end.

Definition logitsQ (net : network) (x : qvec) : qvec := map Qopp (runQ (stages net) x).
Definition lessQ (a b : Q) : bool := negb (Qle_bool b a).
Definition class_ofQ (net : network) (x : qvec) : nat := argmax lessQ (logitsQ net x).

(** ** Distances between integers and rationals *)

Definition near_int (d : Q) (a : Z) (q : Q) : Prop := to_q a - d <= q <= to_q a + d.

(** ‖x − q‖∞ ≤ d for an 8-bit image x and a rational image q. *)
Definition closeQ (d : Q) : vec -> qvec -> Prop := Forall2 (near_int d).

(** q is in the box, whose ends are integers. *)
Definition in_rangeQ (r : range) (q : Q) : Prop := to_q (fst r) <= q <= to_q (snd r).
Definition insideQ : box -> qvec -> Prop := Forall2 in_rangeQ.

Lemma to_q_le : forall a b, (a <= b)%Z -> to_q a <= to_q b.
Proof. intros. unfold to_q. rewrite <- Zle_Qle. assumption. Qed.

Lemma to_q_max : forall a b, to_q (Z.max a b) == Qmax (to_q a) (to_q b).
Proof.
  intros a b. destruct (Z.max_spec a b) as [[H ->]|[H ->]].
  - symmetry. apply Q.max_r, to_q_le. lia.
  - symmetry. apply Q.max_l, to_q_le. lia.
Qed.

Lemma to_q_min : forall a b, to_q (Z.min a b) == Qmin (to_q a) (to_q b).
Proof.
  intros a b. destruct (Z.min_spec a b) as [[H ->]|[H ->]].
  - symmetry. apply Q.min_l, to_q_le. lia.
  - symmetry. apply Q.min_r, to_q_le. lia.
Qed.

Lemma to_q_abs : forall a, to_q (Z.abs a) == Qabs (to_q a).
Proof. intros. reflexivity. Qed.

Lemma to_q_add : forall a b, to_q (a + b) == to_q a + to_q b.
Proof. intros. unfold to_q. rewrite inject_Z_plus. reflexivity. Qed.

Lemma to_q_sub : forall a b, to_q (a - b) == to_q a - to_q b.
Proof. intros. unfold Z.sub, to_q. rewrite inject_Z_plus, inject_Z_opp. reflexivity. Qed.

Lemma to_q_mul : forall a b, to_q (a * b) == to_q a * to_q b.
Proof. intros. unfold to_q. rewrite inject_Z_mult. reflexivity. Qed.

Ltac cases_max a b := let H := fresh in destruct (Q.max_spec a b) as [[? H]|[? H]]; rewrite ?H in *.
Ltac cases_min a b := let H := fresh in destruct (Q.min_spec a b) as [[? H]|[? H]]; rewrite ?H in *.

Lemma near_max : forall d a b p q, near_int d a p -> near_int d b q -> near_int d (Z.max a b) (Qmax p q).
Proof.
  unfold near_int. intros d a b p q Ha Hb. rewrite to_q_max.
  cases_max (to_q a) (to_q b); cases_max p q; lra.
Qed.

Lemma near_min : forall d a b p q, near_int d a p -> near_int d b q -> near_int d (Z.min a b) (Qmin p q).
Proof.
  unfold near_int. intros d a b p q Ha Hb. rewrite to_q_min.
  cases_min (to_q a) (to_q b); cases_min p q; lra.
Qed.

Lemma near_self : forall d a, 0 <= d -> near_int d a (to_q a).
Proof. unfold near_int. intros. lra. Qed.

Lemma near_abs : forall d a w q, near_int d a q -> near_int d (Z.abs (a - w)) (Qabs (q - to_q w)).
Proof.
  unfold near_int. intros d a w q H. rewrite to_q_abs, to_q_sub.
  apply (Qabs_case (to_q a - to_q w)); intros; apply (Qabs_case (q - to_q w)); intros; lra.
Qed.

Lemma near_add : forall d e a b p q, near_int d a p -> near_int e b q -> near_int (d + e) (a + b) (p + q).
Proof. unfold near_int. intros d e a b p q Ha Hb. rewrite to_q_add. lra. Qed.

Lemma near_mul : forall d c a q, (0 <= c)%Z -> near_int d a q -> near_int (to_q c * d) (c * a) (to_q c * q).
Proof.
  unfold near_int. intros d c a q Hc [H1 H2]. rewrite to_q_mul. apply to_q_le in Hc. change (to_q 0) with 0 in Hc.
  pose proof (Qmult_le_compat_r _ _ (to_q c) H1 Hc). pose proof (Qmult_le_compat_r _ _ (to_q c) H2 Hc).
  split; lra.
Qed.

Lemma near_weaken : forall d e a q, d <= e -> near_int d a q -> near_int e a q.
Proof. unfold near_int. intros. lra. Qed.

Lemma closeQ_weaken : forall d e x y, d <= e -> closeQ d x y -> closeQ e x y.
Proof. intros d e x y He H. induction H; constructor; [eapply near_weaken; eassumption | assumption]. Qed.

(** ** The network over the rationals moves by no more than that over the integers *)

Lemma distQ_near : forall w d x y, 0 <= d -> closeQ d x y -> near_int d (dist w x) (distQ w y).
Proof.
  induction w as [|[w0|] w IH]; intros d x y Hd H; inversion H; subst; cbn; try (apply (near_self _ 0), Hd).
  - apply near_max; [apply near_abs; assumption | apply IH; assumption].
  - apply IH; assumption.
Qed.

Lemma totalQ_near : forall d x y, closeQ d x y -> near_int (to_q (Z.of_nat (length x)) * d) (total x) (totalQ y).
Proof.
  intros d x y H. induction H as [|a q x y Ha _ IH].
  - unfold near_int. change (to_q (Z.of_nat (length (@nil Z)))) with 0. change (to_q (total [])) with 0.
    change (totalQ []) with 0. lra.
  - cbn [length]. rewrite Nat2Z.inj_succ, <- Z.add_1_l. cbn [total totalQ fold_right].
    eapply near_weaken; [|apply near_add; [exact Ha | exact IH]]. rewrite to_q_add. change (to_q 1) with 1. lra.
Qed.

Lemma totalQ_bounded : forall n c m d x y, (length x <= n)%nat -> (0 <= c)%Z -> (c * Z.of_nat n <= m)%Z -> 0 <= d ->
  closeQ d x y -> near_int (to_q m * d) (c * total x) (to_q c * totalQ y).
Proof.
  intros n c m d x y Hn Hc Hm Hd H. eapply near_weaken; [|apply near_mul; [exact Hc | apply totalQ_near, H]].
  rewrite Qmult_assoc, <- to_q_mul. apply Qmult_le_compat_r; [|exact Hd]. apply to_q_le. nia.
Qed.

Theorem stageQ_near : forall s d x y, 0 <= d -> closeQ d x y ->
  closeQ (to_q (stretch s) * d) (stage_out s x) (stage_outQ s y).
Proof.
  intros s d x y Hd H. assert (Hone : forall v u, closeQ d v u -> closeQ (to_q 1 * d) v u).
  { intros v u. apply closeQ_weaken. change (to_q 1) with 1. lra. }
  destruct s as [k|c h w side|low high|c h w sizes steps|l|count]; cbn [stretch stage_out stage_outQ].
  - eapply Forall2_map; [|exact H]. intros a q. apply near_mul, Z.pow_nonneg. lia.
  - apply Hone, crop_related, H.
  - apply Hone. eapply Forall2_map; [|exact H]. cbn beta. intros a q Ha.
    apply near_min; [apply near_max; [exact Ha|]|]; apply near_self, Hd.
  - apply Forall2_flat_map. intros s _. destruct (pool_weight_fits steps s) as [Hw Hs].
    eapply Forall2_map_in; [|apply blocks_related, H]. cbn beta. intros a q Hin Hab.
    eapply totalQ_bounded; [eapply blocks_short; exact Hin | exact Hw | exact Hs | exact Hd | exact Hab].
  - apply Hone. unfold layer_out, closeQ. induction (neurons l) as [|n ns IH]; constructor; [|exact IH].
    unfold fire, fireQ. pose proof (distQ_near (weights n) d x y Hd H) as Hn.
    unfold near_int in *. rewrite to_q_add. lra.
  - rewrite (Forall2_length _ _ _ _ _ H). eapply Forall2_map_in; [|apply pieces_related, H].
    cbn beta. intros a q Hin Hab. apply pieces_short in Hin. eapply near_weaken; [|apply totalQ_near, Hab].
    apply Qmult_le_compat_r; [|exact Hd]. apply to_q_le. lia.
Qed.

Theorem runQ_near : forall l d x y, 0 <= d -> closeQ d x y -> closeQ (to_q (stretches l) * d) (run l x) (runQ l y).
Proof.
  induction l as [|s l IH]; intros d x y Hd H; cbn [stretches run runQ].
  - eapply closeQ_weaken; [|exact H]. change (to_q 1) with 1. lra.
  - assert (Hs : 0 <= to_q (stretch s) * d).
    { apply Qmult_le_0_compat; [|exact Hd]. apply (to_q_le 0), stretch_nonneg. }
    pose proof (IH _ _ _ Hs (stageQ_near s d x y Hd H)) as Hrun.
    eapply closeQ_weaken; [|exact Hrun]. rewrite to_q_mul. lra.
Qed.

(** On 8-bit images both are the same function. *)
Theorem runQ_extends_run : forall l x, Forall2 (fun a q => q == to_q a) (run l x) (runQ l (map to_q x)).
Proof.
  intros l x. assert (H : closeQ 0 x (map to_q x)).
  { induction x; constructor; [apply near_self; lra | assumption]. }
  apply (runQ_near l 0 x _ ltac:(lra)) in H. induction H as [|a q v u Ha _ IH]; constructor; [|exact IH].
  unfold near_int in Ha. lra.
Qed.

(** ** The class of rational images *)

Lemma lessQ_spec : forall a b, lessQ a b = true <-> a < b.
Proof.
  intros a b. unfold lessQ. rewrite negb_true_iff. destruct (Qle_bool b a) eqn:E.
  - apply Qle_bool_iff in E. split; [discriminate | lra].
  - split; [intros _ | reflexivity]. destruct (Qlt_le_dec a b) as [H|H]; [exact H|].
    apply Qle_bool_iff in H. congruence.
Qed.

Lemma lessQ_asym : forall a b, lessQ a b = true -> lessQ b a = false.
Proof.
  intros a b H. destruct (lessQ b a) eqn:E; [|reflexivity]. apply lessQ_spec in H, E. lra.
Qed.

(** If class c leads by more than 2 · steps · d, it is the class of every rational image at a distance of at most d. *)
Theorem margin_keeps_classQ : forall net x c d y,
  (c < length (logits net x))%nat -> 0 <= d ->
  2 * to_q (steps net) * d < to_q (margin c (logits net x)) -> closeQ d x y -> class_ofQ net y = c.
Proof.
  intros net x c d y Hc Hd Hm Hy. apply (leads_argmax _ lessQ_asym).
  pose proof (runQ_near (stages net) d x y Hd Hy) as H. fold (steps net) in H. unfold logits in *.
  rewrite map_length in Hc. destruct (nth_exists _ _ _ Hc) as [a Ha].
  destruct (Forall2_nth' _ _ _ _ _ H _ _ Ha) as (q & Hq & Haq).
  exists (- q). split; [apply map_nth_error, Hq|]. intros j b Hj Hb. apply lessQ_spec.
  unfold logitsQ in Hb. rewrite nth_error_map in Hb.
  destruct (nth_error _ j) as [q'|] eqn:Eq; [injection Hb as <-|discriminate].
  destruct (Forall2_nth _ _ _ _ _ H _ _ Eq) as (a' & Ha' & Haq').
  pose proof (margin_leads c _ j _ Hj (map_nth_error Z.opp _ _ Ha')) as Hlead.
  rewrite (nth_error_nth _ _ 0%Z (map_nth_error Z.opp _ _ Ha)) in Hlead.
  apply to_q_le in Hlead. rewrite to_q_add in Hlead. unfold to_q in Hlead. rewrite !inject_Z_opp in Hlead.
  fold (to_q a) (to_q a') in Hlead. unfold near_int in *. unfold to_q in *. lra.
Qed.

(** ** Boxes enclose the rational images in them *)

Lemma range_abs : forall r w q, in_rangeQ r q -> to_q (near r w) <= Qabs (q - to_q w) <= to_q (far r w).
Proof.
  unfold in_rangeQ, near, far. intros r w q H. rewrite !to_q_max, !to_q_sub. change (to_q 0) with 0.
  apply (Qabs_case (q - to_q w)); intros Hs;
    cases_max (to_q (fst r) - to_q w) (to_q w - to_q (snd r));
    cases_max (to_q (snd r) - to_q w) (to_q w - to_q (fst r));
    try (cases_max (to_q (fst r) - to_q w) 0); try (cases_max (to_q w - to_q (snd r)) 0); lra.
Qed.

Lemma distQ_enclosed : forall w b y, insideQ b y -> to_q (nearest w b) <= distQ w y <= to_q (farthest w b).
Proof.
  induction w as [|[w0|] w IH]; intros b y H; inversion H as [|r q b' y' Hr Hb]; subst; cbn;
    try (change (to_q 0) with 0; lra).
  - specialize (IH _ _ Hb). pose proof (range_abs r w0 q Hr). rewrite !to_q_max.
    cases_max (to_q (near r w0)) (to_q (nearest w b')); cases_max (to_q (far r w0)) (to_q (farthest w b'));
      cases_max (Qabs (q - to_q w0)) (distQ w y'); lra.
  - apply IH; assumption.
Qed.

Lemma totalQ_enclosed : forall b y, insideQ b y -> in_rangeQ (total_box b) (totalQ y).
Proof.
  intros b y H. unfold in_rangeQ, total_box, total, totalQ. cbn [fst snd].
  induction H as [|r q b y Hr _ IH]; cbn [map fold_right]; [change (to_q 0) with 0; lra|].
  rewrite !to_q_add. unfold in_rangeQ in Hr. lra.
Qed.

Lemma mulQ_enclosed : forall c l h q, (0 <= c)%Z -> in_rangeQ (l, h) q -> in_rangeQ (c * l, c * h)%Z (to_q c * q).
Proof.
  unfold in_rangeQ. cbn. intros c l h q Hc [H1 H2]. rewrite !to_q_mul. apply to_q_le in Hc. change (to_q 0) with 0 in Hc.
  pose proof (Qmult_le_compat_r _ _ (to_q c) H1 Hc). pose proof (Qmult_le_compat_r _ _ (to_q c) H2 Hc). lra.
Qed.

Theorem stageQ_enclosed : forall s b y, insideQ b y -> insideQ (stage_box s b) (stage_outQ s y).
Proof.
  intros s b y H. destruct s as [k|c h w side|low high|c h w sizes steps|l|count]; cbn [stage_box stage_outQ].
  - eapply Forall2_map; [|exact H]. intros r q Hr. apply mulQ_enclosed; [apply Z.pow_nonneg; lia|].
    destruct r. exact Hr.
  - apply crop_related, H.
  - eapply Forall2_map; [|exact H]. unfold in_rangeQ. cbn [fst snd]. intros r q Hr. rewrite !to_q_min, !to_q_max.
    split; apply Q.min_le_compat_r, Q.max_le_compat_r; tauto.
  - apply Forall2_flat_map. intros s _. destruct (pool_weight_fits steps s) as [Hw _].
    eapply Forall2_map; [|apply blocks_related, H]. intros r q Hr. apply totalQ_enclosed in Hr.
    apply mulQ_enclosed; [exact Hw | exact Hr].
  - unfold layer_box, insideQ. induction (neurons l) as [|n ns IH]; constructor; [|exact IH].
    pose proof (distQ_enclosed (weights n) b y H). rewrite fire_box_spec. unfold in_rangeQ, fireQ. cbn [fst snd].
    rewrite !to_q_add. lra.
  - rewrite (Forall2_length _ _ _ _ _ H). eapply Forall2_map; [|apply pieces_related, H].
    intros. apply totalQ_enclosed. assumption.
Qed.

Theorem runQ_enclosed : forall l b y, insideQ b y -> insideQ (run_box l b) (runQ l y).
Proof. induction l as [|s l IH]; intros b y H; cbn; [exact H | apply IH, stageQ_enclosed, H]. Qed.

(** A box that proves class c proves it for every rational image in it. *)
Theorem box_keeps_classQ : forall net c b y,
  holds c (run_box (stages net) b) = true -> insideQ b y -> class_ofQ net y = c.
Proof.
  intros net c b y Hh Hy. apply (leads_argmax _ lessQ_asym).
  pose proof (runQ_enclosed (stages net) b y Hy) as H. unfold holds in Hh.
  destruct (nth_error _ c) as [r|] eqn:Er; [|discriminate].
  destruct (Forall2_nth' _ _ _ _ _ H _ _ Er) as (t & Ht & Hr).
  exists (- t). unfold logitsQ. split; [apply map_nth_error, Ht|]. intros j a Hj Ha. apply lessQ_spec.
  rewrite nth_error_map in Ha. destruct (nth_error _ j) as [o|] eqn:Eo; [injection Ha as <-|discriminate].
  destruct (Forall2_nth _ _ _ _ _ H _ _ Eo) as (r' & Er' & Hr').
  rewrite forallb_forall in Hh. specialize (Hh _ (others_in _ _ _ _ _ Hj Er')). apply Z.ltb_lt in Hh.
  assert (Hlt : to_q (snd r) < to_q (fst r')) by (unfold to_q; rewrite <- Zlt_Qlt; exact Hh).
  unfold in_rangeQ in *. lra.
Qed.
