(** Exact networks: the function that docs/format.md defines, and how far it moves. *)

From LinfDist Require Export Box Image Class.

Definition total (x : vec) : Z := fold_right Z.add 0 x.

(** The weight that makes a sum over a block of s × s pixels [steps] times their mean. *)
Definition pool_weight (steps : positive) (s : nat) : Z := Z.pos steps / Z.of_nat (s * s).

Inductive stage :=
  | Scale (k : nat)                                            (* times 2ᵏ *)
  | Crop (c h w side : nat)                                    (* the middle of an image of c × h × w pixels *)
  | Clip (low high : Z)                                        (* into this range *)
  | Pool (c h w : nat) (sizes : list nat) (steps : positive)   (* sums over blocks: [steps] times their means *)
  | Dist (l : layer)                                           (* a dist layer *)
  | Sum (count : nat).                                         (* sums of [count] neighbours: one for each class *)

Definition stage_out (s : stage) (x : vec) : vec :=
  match s with
  | Scale k => map (Z.mul (2 ^ Z.of_nat k)) x
  | Crop c h w side => crop c h w side x
  | Clip low high => map (fun a => Z.min (Z.max a low) high) x
  | Pool c h w sizes steps =>
      flat_map (fun s => map (fun block => pool_weight steps s * total block) (blocks c h w s x)) sizes
  | Dist l => layer_out l x
  | Sum count => map total (pieces (length x / count) count x)
  end.

Fixpoint run (stages : list stage) (x : vec) : vec :=
  match stages with
  | [] => x
  | s :: stages => run stages (stage_out s x)
  end.

(** The same for the ends of ranges. All stages but [Dist] keep order, so they map ends to ends. *)
Definition total_box (b : box) : range := (total (map fst b), total (map snd b)).

Definition stage_box (s : stage) (b : box) : box :=
  match s with
  | Scale k => map (fun r => (2 ^ Z.of_nat k * fst r, 2 ^ Z.of_nat k * snd r)) b
  | Crop c h w side => crop c h w side b
  | Clip low high => map (fun r => (Z.min (Z.max (fst r) low) high, Z.min (Z.max (snd r) low) high)) b
  | Pool c h w sizes steps =>
      flat_map (fun s => map (fun block => let r := total_box block in
        (pool_weight steps s * fst r, pool_weight steps s * snd r)) (blocks c h w s b)) sizes
  | Dist l => layer_box l b
  | Sum count => map total_box (pieces (length b / count) count b)
  end.

Fixpoint run_box (stages : list stage) (b : box) : box :=
  match stages with
  | [] => b
  | s :: stages => run_box stages (stage_box s b)
  end.

(** By how much a stage can stretch distances in ℓ∞, and all stages together. *)
Definition stretch (s : stage) : Z :=
  match s with
  | Scale k => 2 ^ Z.of_nat k
  | Pool _ _ _ _ steps => Z.pos steps
  | Sum count => Z.of_nat count
  | Crop _ _ _ _ | Clip _ _ | Dist _ => 1
  end.

Fixpoint stretches (stages : list stage) : Z :=
  match stages with
  | [] => 1
  | s :: stages => stretch s * stretches stages
  end.

(** A file: its images have c × h × w pixels; [domain] has the least and the largest value of each pixel. *)
Record network := Network {
  shape : nat * nat * nat;
  scale : nat;                                (* k: a pixel of value n is the integer n · 2ᵏ *)
  crop_to : option nat;
  clip_to : option (Z * Z);
  pool_by : option (list nat * positive);
  layers : list layer;
  per_class : option nat;
  domain : box;
}.

Definition if_some {A} (f : A -> stage) (o : option A) : list stage :=
  match o with Some a => [f a] | None => [] end.

Definition stages (net : network) : list stage :=
  let '(c, h, w) := shape net in
  let '(h', w') := match crop_to net with Some side => (side, side) | None => (h, w) end in
  [Scale (scale net)] ++ if_some (Crop c h w) (crop_to net) ++
  if_some (fun '(low, high) => Clip low high) (clip_to net) ++
  if_some (fun '(sizes, steps) => Pool c h' w' sizes steps) (pool_by net) ++
  map Dist (layers net) ++ if_some Sum (per_class net).

(** No logit moves by more than [steps] when no pixel moves by more than a level. *)
Definition steps (net : network) : Z := stretches (stages net).

(** The logits are the negated outputs of the last stage. *)
Definition logits (net : network) (x : vec) : vec := map Z.opp (run (stages net) x).
Definition class_of (net : network) (x : vec) : nat := argmax Z.ltb (logits net x).

(** The 8-bit images that the network is for. *)
Definition in_domain (net : network) (x : vec) : Prop := inside (domain net) x.

(** ** Networks move by no more than their stages stretch *)

Lemma total_lipschitz : forall d x y, close d x y -> Z.abs (total x - total y) <= Z.of_nat (length x) * d.
Proof. intros d x y H. induction H; cbn [total fold_right length] in *; unfold total in *; lia. Qed.

Lemma pool_weight_fits : forall steps s, 0 <= pool_weight steps s /\ pool_weight steps s * Z.of_nat (s * s) <= Z.pos steps.
Proof.
  intros p s. unfold pool_weight. destruct (Z.eq_dec (Z.of_nat (s * s)) 0) as [->|H].
  - rewrite Zdiv_0_r. lia.
  - assert (0 < Z.of_nat (s * s)) by lia. split; [apply Z.div_pos; lia|].
    rewrite Z.mul_comm. apply Z.mul_div_le. lia.
Qed.

Lemma Forall2_flat_map : forall A B C (R : A -> B -> Prop) (f : C -> list A) (g : C -> list B) l,
  (forall c, In c l -> Forall2 R (f c) (g c)) -> Forall2 R (flat_map f l) (flat_map g l).
Proof.
  intros A B C R f g l H. induction l; cbn; [constructor|].
  apply Forall2_app; [apply H; left; reflexivity | apply IHl; intros; apply H; right; assumption].
Qed.

(** [Forall2_map] for lists of which more is known than a relation of their entries. *)
Lemma Forall2_map_in : forall A B A' B' (R : A -> B -> Prop) (R' : A' -> B' -> Prop) f g x y,
  (forall a b, In a x -> R a b -> R' (f a) (g b)) -> Forall2 R x y -> Forall2 R' (map f x) (map g y).
Proof.
  intros A B A' B' R R' f g x y Hf H. induction H; cbn; constructor; [apply Hf; [left|]; auto|].
  apply IHForall2. intros. apply Hf; [right|]; assumption.
Qed.

Theorem stage_lipschitz : forall s d x y, 0 <= d -> close d x y ->
  close (stretch s * d) (stage_out s x) (stage_out s y).
Proof.
  intros s d x y Hd H. destruct s as [k|c h w side|low high|c h w sizes steps|l|count]; cbn [stretch stage_out].
  - eapply Forall2_map; [|exact H]. cbn beta. intros a b Hab. rewrite <- Z.mul_sub_distr_l, Z.abs_mul.
    rewrite (Z.abs_eq (2 ^ _)) by (apply Z.pow_nonneg; lia). apply Z.mul_le_mono_nonneg_l; [apply Z.pow_nonneg; lia | exact Hab].
  - rewrite Z.mul_1_l. apply crop_related, H.
  - rewrite Z.mul_1_l. eapply Forall2_map; [|exact H]. cbn beta. intros. lia.
  - apply Forall2_flat_map. intros s _. destruct (pool_weight_fits steps s) as [Hw Hs].
    eapply Forall2_map_in; [|apply blocks_related, H]. cbn beta. intros a b Hin Hab.
    apply total_lipschitz in Hab. apply blocks_short in Hin.
    rewrite <- Z.mul_sub_distr_l, Z.abs_mul, (Z.abs_eq (pool_weight _ _)) by exact Hw.
    apply Z.le_trans with (pool_weight steps s * (Z.of_nat (s * s) * d)).
    + apply Z.mul_le_mono_nonneg_l; [exact Hw|]. nia.
    + rewrite Z.mul_assoc. apply Z.mul_le_mono_nonneg_r; assumption.
  - rewrite Z.mul_1_l. apply layer_lipschitz; assumption.
  - rewrite (close_length _ _ _ H). eapply Forall2_map_in; [|apply pieces_related, H].
    cbn beta. intros a b Hin Hab. apply total_lipschitz in Hab. apply pieces_short in Hin. nia.
Qed.

Lemma stretch_nonneg : forall s, 0 <= stretch s.
Proof. destruct s; cbn; lia. Qed.

Lemma stretches_nonneg : forall l, 0 <= stretches l.
Proof. induction l as [|s l IH]; cbn; [lia|]. pose proof (stretch_nonneg s). nia. Qed.

Theorem run_lipschitz : forall l d x y, 0 <= d -> close d x y -> close (stretches l * d) (run l x) (run l y).
Proof.
  induction l as [|s l IH]; intros d x y Hd H; cbn [stretches run]; [rewrite Z.mul_1_l; exact H|].
  replace (stretch s * stretches l * d) with (stretches l * (stretch s * d)) by ring.
  apply IH; [apply Z.mul_nonneg_nonneg; [apply stretch_nonneg | exact Hd] | apply stage_lipschitz; assumption].
Qed.

(** The network is [steps]-Lipschitz in ℓ∞ from pixels in levels to logits in grid units: 1-Lipschitz, since one level
    is [steps] grid units. *)
Theorem network_lipschitz : forall net d x y, 0 <= d -> close d x y ->
  close (steps net * d) (logits net x) (logits net y).
Proof.
  intros net d x y Hd H. unfold logits. eapply Forall2_map; [|apply run_lipschitz; eassumption].
  cbn beta. unfold steps. intros. lia.
Qed.

(** A plain network has 2ᵏ grid units a level. *)
Theorem plain_steps : forall net, pool_by net = None -> per_class net = None -> steps net = 2 ^ Z.of_nat (scale net).
Proof.
  intros net Hp Hs. unfold steps, stages. destruct (shape net) as [[c h] w].
  assert (Hdist : forall l, stretches (map Dist l ++ []) = 1).
  { induction l as [|a l IH]; cbn [map app stretches stretch]; [reflexivity | rewrite Z.mul_1_l; exact IH]. }
  rewrite Hp, Hs. destruct (crop_to net), (clip_to net) as [[low high]|];
    cbn [if_some app stretches stretch]; rewrite Hdist; ring.
Qed.

(** ** Boxes enclose *)

Lemma total_enclosed : forall b x, inside b x -> in_range (total_box b) (total x).
Proof.
  intros b x H. unfold in_range, total_box, total. cbn. induction H as [|r a b x Hr _ IH]; cbn; [lia|].
  unfold in_range in Hr. lia.
Qed.

Theorem stage_enclosed : forall s b x, inside b x -> inside (stage_box s b) (stage_out s x).
Proof.
  intros s b x H. destruct s as [k|c h w side|low high|c h w sizes steps|l|count]; cbn [stage_box stage_out].
  - eapply Forall2_map; [|exact H]. unfold in_range. cbn. intros r a Hr.
    split; apply Z.mul_le_mono_nonneg_l; try apply Z.pow_nonneg; lia.
  - apply crop_related, H.
  - eapply Forall2_map; [|exact H]. unfold in_range. cbn. intros. lia.
  - apply Forall2_flat_map. intros s _. destruct (pool_weight_fits steps s) as [Hw _].
    eapply Forall2_map; [|apply blocks_related, H]. intros r a Hr. apply total_enclosed in Hr.
    unfold in_range in *. cbn in *. split; apply Z.mul_le_mono_nonneg_l; tauto.
  - apply layer_enclosed, H.
  - rewrite (inside_length _ _ H). eapply Forall2_map; [|apply pieces_related, H]. intros. apply total_enclosed. assumption.
Qed.

(** Every output of the network, for an input in a box, lies in the box that was computed for it. *)
Theorem run_enclosed : forall l b x, inside b x -> inside (run_box l b) (run l x).
Proof. induction l as [|s l IH]; intros b x H; cbn; [exact H | apply IH, stage_enclosed, H]. Qed.
