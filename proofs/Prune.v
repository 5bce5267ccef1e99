(** Leaving out what can never matter: on a box of inputs, pruning by ranges changes no output. *)

From LinfDist Require Export Network.

(** [kept] is [full] without some entries, each of which is never further away than [floor]. *)
Fixpoint leaves_out (floor : Z) (full kept : row) (b : box) : Prop :=
  match full, kept, b with
  | [], [], _ => True
  | Some v :: full, Some w :: kept, _ :: b => v = w /\ leaves_out floor full kept b
  | None :: full, None :: kept, _ :: b => leaves_out floor full kept b
  | Some v :: full, None :: kept, r :: b => far r v <= floor /\ leaves_out floor full kept b
  | _, _, _ => False
  end.

Lemma leaves_out_between : forall floor full kept b x, leaves_out floor full kept b -> inside b x ->
  dist kept x <= dist full x <= Z.max floor (dist kept x).
Proof.
  intros floor. induction full as [|[v|] full IH]; intros [|[w|] kept] b x H Hx; cbn in H; try contradiction; cbn;
    try lia; destruct Hx as [|r a b x Hr Hx]; try contradiction.
  - destruct H as [-> H]. specialize (IH _ _ _ H Hx). lia.
  - destruct H as [Hf H]. specialize (IH _ _ _ H Hx). pose proof (near_far r v a Hr). lia.
  - apply (IH _ _ _ H Hx).
Qed.

(** What is never further away than the neuron is at least may be left out. *)
Theorem leaving_out_is_lossless : forall full kept b x,
  leaves_out (nearest kept b) full kept b -> inside b x -> dist kept x = dist full x.
Proof.
  intros full kept b x H Hx. pose proof (leaves_out_between _ _ _ _ _ H Hx).
  pose proof (dist_enclosed kept b x Hx). lia.
Qed.

(** ** The pruning that [linfdist export --format exact] does *)

(** Entries stay if they can be further away than [floor], and so does the first that is never nearer than [floor]. *)
Fixpoint prune_row (floor : Z) (held : bool) (w : row) (b : box) : row :=
  match w, b with
  | Some w0 :: w, r :: b =>
      let holder := negb held && (near r w0 =? floor) in
      (if (floor <? far r w0) || holder then Some w0 else None) :: prune_row floor (held || holder) w b
  | o :: w, _ :: b => o :: prune_row floor held w b
  | w, [] => w
  | [], _ => []
  end.

Definition prune_neuron (b : box) (n : neuron) : neuron :=
  Neuron (prune_row (nearest (weights n) b) false (weights n) b) (bias n).
Definition prune_layer (l : layer) (b : box) : layer := Layer (bits l) (map (prune_neuron b) (neurons l)).

(** Layer by layer, each for the ranges that the pruned layer before it can reach. *)
Fixpoint prune_layers (ls : list layer) (b : box) : list layer :=
  match ls with
  | [] => []
  | l :: ls => let l' := prune_layer l b in l' :: prune_layers ls (layer_box l' b)
  end.

Lemma prune_row_between : forall floor w b x held, inside b x ->
  dist (prune_row floor held w b) x <= dist w x <= Z.max floor (dist (prune_row floor held w b) x).
Proof.
  intros floor. induction w as [|[w0|] w IH]; intros b x held H; destruct H as [|r a b x Hr Hx]; cbn; try lia.
  - pose proof (near_far r w0 a Hr). specialize (IH b x (held || (negb held && (near r w0 =? floor))) Hx).
    destruct (floor <? far r w0) eqn:E; cbn [orb dist]; [lia|]. apply Z.ltb_ge in E.
    destruct (negb held && _); cbn [dist]; lia.
  - apply IH, Hx.
Qed.

Lemma prune_row_keeps_floor : forall floor w b x, inside b x -> floor <= nearest w b ->
  floor <= 0 \/ floor <= nearest (prune_row floor false w b) b.
Proof.
  intros floor. induction w as [|[w0|] w IH]; intros b x H Hf; destruct H as [|r a b x Hr Hx]; cbn in *; try lia.
  - pose proof (near_far r w0 a Hr). destruct (near r w0 =? floor) eqn:E; cbn [andb negb orb].
    + apply Z.eqb_eq in E. rewrite orb_true_r. cbn. lia.
    + apply Z.eqb_neq in E. destruct (floor <? far r w0) eqn:F; cbn [orb nearest].
      * destruct (Z.le_gt_cases floor (nearest w b)) as [G|G]; [destruct (IH b x Hx G); lia | lia].
      * apply Z.ltb_ge in F. apply (IH b x Hx). lia.
  - apply (IH b x Hx). exact Hf.
Qed.

Theorem pruning_a_row_is_lossless : forall w b x, inside b x -> dist (prune_row (nearest w b) false w b) x = dist w x.
Proof.
  intros w b x H. pose proof (prune_row_between (nearest w b) w b x false H).
  pose proof (prune_row_keeps_floor (nearest w b) w b x H (Z.le_refl _)).
  pose proof (dist_enclosed (prune_row (nearest w b) false w b) b x H).
  pose proof (dist_nonneg (prune_row (nearest w b) false w b) x). lia.
Qed.

Theorem pruning_a_layer_is_lossless : forall l b x, inside b x -> layer_out (prune_layer l b) x = layer_out l x.
Proof.
  intros l b x H. unfold layer_out, prune_layer. cbn [neurons]. rewrite map_map. apply map_ext. intros n.
  unfold fire. cbn. f_equal. apply pruning_a_row_is_lossless, H.
Qed.

(** Pruning all layers by their ranges changes no output on the domain. *)
Theorem pruning_is_lossless : forall ls b x, inside b x ->
  run (map Dist (prune_layers ls b)) x = run (map Dist ls) x.
Proof.
  induction ls as [|l ls IH]; intros b x H; [reflexivity|].
  cbn [prune_layers map run stage_out]. rewrite (pruning_a_layer_is_lossless l b x H).
  apply IH. rewrite <- (pruning_a_layer_is_lossless l b x H). apply layer_enclosed, H.
Qed.

(** ** Neurons that nothing looks at *)

Fixpoint keep {A} (used : list bool) (x : list A) : list A :=
  match used, x with
  | u :: used, a :: x => if u then a :: keep used x else keep used x
  | _, _ => []
  end.

(** A neuron that no row of the next layer looks at may be removed, together with its column in these rows. *)
Theorem unused_neurons_may_go : forall used l w x,
  length used = length (neurons l) -> length w = length used ->
  (forall i, nth_error used i = Some false -> nth_error w i = Some None) ->
  dist (keep used w) (layer_out (Layer (bits l) (keep used (neurons l))) x) = dist w (layer_out l x).
Proof.
  intros used l w x. unfold layer_out. cbn [neurons]. generalize (neurons l). revert w.
  induction used as [|u used IH]; intros [|o w] [|n ns] Hn Hw H; try discriminate; [reflexivity|].
  injection Hn as Hn. injection Hw as Hw.
  assert (IH' := IH w ns Hn Hw (fun i => H (S i))).
  destruct u; cbn [keep map dist].
  - destruct o; cbn; rewrite IH'; reflexivity.
  - specialize (H 0%nat eq_refl). injection H as ->. exact IH'.
Qed.

(** ** What a file must satisfy, and readers without masks *)

(** The widest range of an input whose entry was left out. *)
Fixpoint widest (w : row) (b : box) : Z :=
  match w, b with
  | None :: w, r :: b => Z.max (snd r - fst r) (widest w b)
  | Some _ :: w, _ :: b => widest w b
  | _, _ => 0
  end.

(** docs/format.md: what was left out cannot win. ⌈(high − low)/2⌉ is how far an input can be from the middle of its
    range; the widest range decides. *)
Definition left_out (w : row) (b : box) : Z := (widest w b + 1) / 2.
Definition lossless (n : neuron) (b : box) : bool := left_out (weights n) b <=? nearest (weights n) b.

(** The row of a reader without masks: the middle of its input's range stands for every entry that was left out. *)
Fixpoint dense_row (w : row) (b : box) : row :=
  match w, b with
  | None :: w, r :: b => Some ((fst r + snd r) / 2) :: dense_row w b
  | o :: w, _ :: b => o :: dense_row w b
  | w, [] => w
  | [], _ => []
  end.

Definition dense_layer (l : layer) (b : box) : layer :=
  Layer (bits l) (map (fun n => Neuron (dense_row (weights n) b) (bias n)) (neurons l)).

(** [lia] may divide by constants. *)
Ltac Zify.zify_post_hook ::= Z.div_mod_to_equations.

Lemma far_middle : forall r, far r ((fst r + snd r) / 2) <= (snd r - fst r + 1) / 2.
Proof.
  intros r. unfold far. lia.
Qed.

Lemma dense_leaves_out : forall floor w b, length w = length b -> left_out w b <= floor -> leaves_out floor (dense_row w b) w b.
Proof.
  intros floor. unfold left_out. induction w as [|[w0|] w IH]; intros [|r b] Hl H; cbn in *; try discriminate; auto.
  pose proof (far_middle r). split; [lia | apply IH; lia].
Qed.

(** Such a reader computes the same. *)
Theorem dense_is_the_same : forall l b x,
  (forall n, In n (neurons l) -> length (weights n) = length b /\ lossless n b = true) ->
  inside b x -> layer_out (dense_layer l b) x = layer_out l x.
Proof.
  intros l b x H Hx. unfold layer_out, dense_layer. cbn [neurons]. rewrite map_map. apply map_ext_in. intros n Hn.
  destruct (H n Hn) as [Hl Hn']. unfold fire. cbn. f_equal. symmetry. apply (leaving_out_is_lossless _ _ b); [|exact Hx].
  apply dense_leaves_out; [exact Hl | apply Z.leb_le, Hn'].
Qed.
