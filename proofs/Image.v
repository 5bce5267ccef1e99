(** Rearranging the pixels of an image: its middle, its blocks.

    An image of C channels, H rows and W columns is one list, channel by channel and row by row. What is here moves
    entries and never looks at them. So it works alike on pixels, on ranges of pixels and on rational pixels, and keeps
    whatever relation holds between the entries of two images: that is [crop_related] and [blocks_related]. *)

From LinfDist Require Export Linf.
From Coq Require Import PeanoNat.
Local Open Scope nat_scope.

(** The first [count] pieces of [n] entries each; what is left over is dropped. *)
Fixpoint pieces {A} (count n : nat) (x : list A) : list (list A) :=
  match count with
  | O => []
  | S count => firstn n x :: pieces count n (skipn n x)
  end.

(** The middle [side] entries of a list: from ⌊(length − side)/2⌋. *)
Definition middle {A} (side : nat) (x : list A) : list A := firstn side (skipn ((length x - side) / 2) x).

(** The channels of an image, each a list of its rows. *)
Definition channels {A} (c h w : nat) (x : list A) : list (list (list A)) := pieces c h (pieces (c * h) w x).

(** The square of [side] × [side] pixels in the middle of every channel. *)
Definition crop {A} (c h w side : nat) (x : list A) : list A :=
  concat (map (fun rows => concat (map (middle side) (middle side rows))) (channels c h w x)).

Fixpoint zip_app {A} (a b : list (list A)) : list (list A) :=
  match a, b with
  | x :: a, y :: b => (x ++ y) :: zip_app a b
  | _, _ => []
  end.

(** The blocks of a band of rows: the j-th consists of the j-th piece of every row. *)
Fixpoint band_blocks {A} (w s : nat) (band : list (list A)) : list (list A) :=
  match band with
  | [] => []
  | [r] => pieces (w / s) s r
  | r :: band => zip_app (pieces (w / s) s r) (band_blocks w s band)
  end.

(** The blocks of [s] × [s] pixels, channel by channel and row by row. *)
Definition blocks {A} (c h w s : nat) (x : list A) : list (list A) :=
  concat (map (fun rows => concat (map (band_blocks w s) (pieces (h / s) s rows))) (channels c h w x)).

(** ** Blocks are no larger than they should be *)

Lemma pieces_short : forall A count n (x p : list A), In p (pieces count n x) -> length p <= n.
Proof.
  induction count as [|count IH]; intros n x p H; [destruct H|].
  destruct H as [<-|H]; [apply firstn_le_length | eapply IH; exact H].
Qed.

Lemma zip_app_short : forall A n m (a b : list (list A)),
  (forall p, In p a -> length p <= n) -> (forall p, In p b -> length p <= m) ->
  forall p, In p (zip_app a b) -> length p <= n + m.
Proof.
  induction a as [|x a IH]; intros b Ha Hb p H; [destruct H|].
  destruct b as [|y b]; [destruct H|]. destruct H as [<-|H].
  - rewrite app_length. apply Nat.add_le_mono; [apply Ha | apply Hb]; left; reflexivity.
  - apply (IH b); [intros q Hq; apply Ha; right; exact Hq | intros q Hq; apply Hb; right; exact Hq | exact H].
Qed.

Lemma band_blocks_short : forall A w s (band : list (list A)) p,
  In p (band_blocks w s band) -> length p <= length band * s.
Proof.
  induction band as [|r band IH]; intros p H; [destruct H|].
  destruct band as [|r' band].
  - cbn in *. rewrite Nat.add_0_r. eapply pieces_short. exact H.
  - change (length (r :: r' :: band) * s) with (s + length (r' :: band) * s).
    eapply zip_app_short; [apply pieces_short | exact IH | exact H].
Qed.

(** A block has at most s² pixels. *)
Lemma blocks_short : forall A c h w s (x p : list A), In p (blocks c h w s x) -> length p <= s * s.
Proof.
  unfold blocks. intros A c h w s x p H.
  apply in_concat in H as (l & Hl & Hp). apply in_map_iff in Hl as (rows & <- & _).
  apply in_concat in Hp as (l & Hl & Hp). apply in_map_iff in Hl as (band & <- & Hband).
  apply band_blocks_short in Hp. apply pieces_short in Hband. nia.
Qed.

(** ** Relations between entries are kept *)

Lemma Forall2_firstn : forall A B (R : A -> B -> Prop) n x y, Forall2 R x y -> Forall2 R (firstn n x) (firstn n y).
Proof. intros A B R n x y H. revert n. induction H; intros [|n]; cbn; constructor; auto. Qed.

Lemma Forall2_skipn : forall A B (R : A -> B -> Prop) n x y, Forall2 R x y -> Forall2 R (skipn n x) (skipn n y).
Proof. intros A B R n x y H. revert n. induction H; intros [|n]; cbn; try constructor; auto. Qed.

Lemma Forall2_concat : forall A B (R : A -> B -> Prop) x y,
  Forall2 (Forall2 R) x y -> Forall2 R (concat x) (concat y).
Proof. intros A B R x y H. induction H; cbn; [constructor | apply Forall2_app; assumption]. Qed.

Section Related.
Context {A B : Type} (R : A -> B -> Prop).

Lemma pieces_related : forall count n x y, Forall2 R x y -> Forall2 (Forall2 R) (pieces count n x) (pieces count n y).
Proof.
  induction count as [|count IH]; intros n x y H; cbn; constructor.
  - apply Forall2_firstn, H.
  - apply IH, Forall2_skipn, H.
Qed.

Lemma middle_related : forall side x y, Forall2 R x y -> Forall2 R (middle side x) (middle side y).
Proof.
  intros side x y H. unfold middle. rewrite (Forall2_length _ _ _ _ _ H). apply Forall2_firstn, Forall2_skipn, H.
Qed.

Lemma zip_app_related : forall a a' b b',
  Forall2 (Forall2 R) a a' -> Forall2 (Forall2 R) b b' -> Forall2 (Forall2 R) (zip_app a b) (zip_app a' b').
Proof.
  intros a a' b b' H. revert b b'. induction H; intros b b' Hb; cbn; [constructor|].
  destruct Hb; constructor; [apply Forall2_app; assumption | apply IHForall2; assumption].
Qed.
End Related.

Section Related.
Context {A B : Type} (R : A -> B -> Prop).

Lemma channels_related : forall c h w x y,
  Forall2 R x y -> Forall2 (Forall2 (Forall2 R)) (channels c h w x) (channels c h w y).
Proof. intros. unfold channels. apply pieces_related, pieces_related. assumption. Qed.

Theorem crop_related : forall c h w side x y, Forall2 R x y -> Forall2 R (crop c h w side x) (crop c h w side y).
Proof.
  intros c h w side x y H. unfold crop. apply Forall2_concat.
  eapply Forall2_map; [|apply channels_related, H].
  intros a b Hab. apply Forall2_concat. eapply Forall2_map; [|apply middle_related, Hab].
  intros. apply middle_related. assumption.
Qed.

Lemma band_blocks_related : forall w s a b,
  Forall2 (Forall2 R) a b -> Forall2 (Forall2 R) (band_blocks w s a) (band_blocks w s b).
Proof.
  intros w s a b H. induction H as [|r r' a b Hr Hab IH]; [constructor|].
  destruct Hab.
  - apply pieces_related, Hr.
  - apply zip_app_related; [apply pieces_related, Hr | exact IH].
Qed.

Theorem blocks_related : forall c h w s x y,
  Forall2 R x y -> Forall2 (Forall2 R) (blocks c h w s x) (blocks c h w s y).
Proof.
  intros c h w s x y H. unfold blocks. apply Forall2_concat.
  eapply Forall2_map; [|apply channels_related, H].
  intros a b Hab. apply Forall2_concat. eapply Forall2_map; [|apply pieces_related, Hab].
  intros. apply band_blocks_related. assumption.
Qed.
End Related.
