(** Vectors of integers, their distance in ℓ∞, and boxes.

    A vector is a list. Nothing here knows of networks. *)

From Coq Require Export ZArith List Bool Lia.
Export ListNotations.
Global Open Scope Z_scope.

Definition vec := list Z.

(** ‖x − y‖∞ ≤ d: equally many entries, each pair at most d apart. *)
Definition close (d : Z) : vec -> vec -> Prop := Forall2 (fun a b => Z.abs (a - b) <= d).

(** A box has a least and a largest value for each entry. *)
Definition range := (Z * Z)%type.
Definition box := list range.
Definition in_range (r : range) (a : Z) : Prop := fst r <= a <= snd r.
Definition inside : box -> vec -> Prop := Forall2 in_range.

(** The box of one point. *)
Definition point (x : vec) : box := map (fun a => (a, a)) x.

(** The images within [n] levels of [x], as far as they are in the box [domain]. *)
Fixpoint ball (n : Z) (domain : box) (x : vec) : box :=
  match domain, x with
  | r :: domain, a :: x => (Z.max (a - n) (fst r), Z.min (a + n) (snd r)) :: ball n domain x
  | _, _ => []
  end.

(** The largest of a list, which must not be empty for this to mean anything. *)
Fixpoint largest (z : vec) : Z :=
  match z with
  | [] => 0
  | [a] => a
  | a :: z => Z.max a (largest z)
  end.

(** ** About lists; the standard library of Coq 8.16 lacks these *)

Lemma Forall2_length : forall A B (R : A -> B -> Prop) x y, Forall2 R x y -> length x = length y.
Proof. intros A B R x y H. induction H; cbn; congruence. Qed.

Lemma Forall2_map : forall A B A' B' (R : A -> B -> Prop) (R' : A' -> B' -> Prop) f g x y,
  (forall a b, R a b -> R' (f a) (g b)) -> Forall2 R x y -> Forall2 R' (map f x) (map g y).
Proof. intros A B A' B' R R' f g x y Hf H. induction H; cbn; constructor; auto. Qed.

(** ** About distances and boxes *)

Lemma close_refl : forall x d, 0 <= d -> close d x x.
Proof.
  intros x d Hd. induction x; constructor; [rewrite Z.sub_diag; exact Hd | assumption].
Qed.

Lemma close_zero : forall x y, close 0 x y -> x = y.
Proof. intros x y H. induction H; f_equal; [lia | assumption]. Qed.

Lemma close_weaken : forall d e x y, d <= e -> close d x y -> close e x y.
Proof. intros d e x y He H. induction H; constructor; [lia | assumption]. Qed.

Lemma close_length : forall d x y, close d x y -> length x = length y.
Proof. intros. eapply Forall2_length. eassumption. Qed.

Lemma inside_length : forall b x, inside b x -> length b = length x.
Proof. intros. eapply Forall2_length. eassumption. Qed.

Lemma inside_point : forall x, inside (point x) x.
Proof. induction x; constructor; [split; cbn; lia | assumption]. Qed.

(** What is within n levels and in the domain is in the ball. *)
Lemma inside_ball : forall domain n x y,
  inside domain x -> inside domain y -> close n x y -> inside (ball n domain x) y.
Proof.
  induction domain as [|r domain IH]; intros n x y Hx Hy Hc.
  - inversion Hx; subst. inversion Hy; subst. constructor.
  - inversion Hx as [|? a ? x' Ha Hx']; subst.
    inversion Hy as [|? b ? y' Hb Hy']; subst.
    inversion Hc; subst. cbn. constructor.
    + unfold in_range in *. cbn. lia.
    + apply IH; assumption.
Qed.

Lemma largest_ge : forall z a, In a z -> a <= largest z.
Proof.
  induction z as [|a z IH]; intros b H; [contradiction|].
  destruct z as [|a' z].
  - destruct H as [->|[]]. cbn. lia.
  - change (b <= Z.max a (largest (a' :: z))). destruct H as [->|H]; [lia|]. specialize (IH _ H). lia.
Qed.
