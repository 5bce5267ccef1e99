(* checker NETWORK [CERTIFICATES IMAGES]

   NETWORK is an exact network. CERTIFICATES has one certificate a line, in the form of Python's json.dumps. IMAGES has the
   images, one after the other, each as its sha256 is formed: "C,H,W:" and its pixels. Printed is "valid" for the network,
   then one verdict a line; the exit code is 0 if nothing was refused, else 1. *)

open Json

let refuse = Network.refuse

let read path =
  if (Unix.stat path).Unix.st_kind <> Unix.S_REG || (Unix.stat path).Unix.st_size > 1 lsl 31 then refuse "it is not a regular file of at most 2^31 bytes";
  let file = open_in_bin path in
  Fun.protect ~finally:(fun () -> close_in file) (fun () -> really_input_string file (in_channel_length file))

(* Coq's integers as text, for messages and for the grid. All that is printed fits OCaml's. *)
let rec of_positive = function Proved.XH -> 1 | Proved.XO p -> 2 * of_positive p | Proved.XI p -> 2 * of_positive p + 1
let of_z = function Proved.Z0 -> 0 | Proved.Zpos p -> of_positive p | Proved.Zneg p -> -of_positive p
let of_nat n = let rec from n sum = match n with Proved.O -> sum | Proved.S n -> from n (sum + 1) in from n 0
let of_q { Proved.qnum; qden } = match of_positive qden with 1 -> string_of_int (of_z qnum) | den -> Printf.sprintf "%d/%d" (of_z qnum) den

let words = function
  | Proved.OutsideDomain -> "the image is outside the network's domain"
  | FewClasses -> "the network has fewer than two classes"
  | WrongClass c -> Printf.sprintf "class: it is %d" (of_nat c)
  | WrongMargin m -> Printf.sprintf "margin: it is %d" (of_z m)
  | WrongLevels (a, b) -> Printf.sprintf "levels: it is %d to %d" (of_z a) (of_z b)
  | NotProved -> "levels: the network's intervals do not prove so many"
  | ProvesMore -> "levels: the network's intervals prove more"
  | WrongRadius q -> Printf.sprintf "radius: it is %S" (of_q q)

(* "247/2", or "38": a fraction in lowest terms, whose denominator is left out if it is 1. *)
let radius text =
  let number least part = Network.whole "a number of the radius" least max_int (Json.number part) in
  let fraction num den = { Proved.qnum = Network.z num; qden = Network.positive den } in
  match String.split_on_char '/' text with
  | [ num ] -> fraction (number 0 num) 1
  | [ num; den ] -> fraction (number 0 num) (number 2 den)
  | _ -> refuse "the radius is no fraction"

let keys = [ "class"; "margin"; "levels"; "method"; "radius"; "ball"; "format"; "image_sha256"; "image_shape"; "model_sha256"; "grid"; "domain_sha256" ]

(* What the theorem is about, of a certificate whose other entries are as they must be. *)
let certificate (net : Network.t) image line =
  match Network.fields "the certificate" keys (parse ~space:true line) with
  | [ c; margin; levels; way; rad; ball; format; image_sha256; image_shape; model_sha256; grid; domain_sha256 ] ->
      let same what value expected = if value <> expected then refuse "%s: it is %s" what (sorted expected) in
      let boxed = match way with Text "box" -> true | Text "margin" -> false | _ -> refuse "method: it is margin or box" in
      same "format" format (Text "linfdist-certificate-1");
      same "image_sha256" image_sha256 (Text (Sha256.hex image));
      same "image_shape" image_shape (List (List.map (fun side -> Whole (string_of_int side)) net.shape));
      same "model_sha256" model_sha256 (Text net.sha256);
      same "grid" grid (Text (Printf.sprintf "1/%d pixel" (255 * of_z (Proved.steps net.proved))));
      same "ball" ball (Text (if boxed then "closed" else "open"));
      same "domain_sha256" domain_sha256 (match net.domain_sha256 with None -> Null | Some hash -> Text hash);
      { Proved.its_class = Network.nat (Network.whole "class" 0 (1 lsl 20) c);
        its_margin = Network.z (Network.whole "margin" 0 max_int margin);
        its_method = (if boxed then Proved.ByBox else Proved.ByMargin);
        its_radius = radius (Network.text "radius" rad);
        its_levels = Network.z (Network.whole "levels" 0 255 levels) }
  | _ -> assert false

let verdict net image line =
  match
    let cert = certificate net image line in
    let pixels = String.length image - String.length (Network.shape_text net.shape) in
    let first = String.length image - pixels in
    Proved.judge net.proved (List.init pixels (fun i -> Network.z (Char.code image.[first + i]))) cert
  with
  | Proved.Proved -> "proved"
  | Refused why -> "refused: " ^ words why
  | exception Wrong why -> "refused: " ^ why

let images (net : Network.t) data =
  let mark = Network.shape_text net.shape in
  let size = String.length mark + Network.product net.shape in
  if String.length data mod size <> 0 then refuse "the images do not have the shape %s of the network" mark;
  let image i =
    if String.sub data (i * size) (String.length mark) <> mark then refuse "image %d does not have the shape %s of the network" i mark;
    String.sub data (i * size) size
  in
  List.init (String.length data / size) image

let () =
  let refused why = print_endline ("refused: " ^ why); exit 1 in
  try
    match Array.to_list Sys.argv with
    | [ _; path ] -> ignore (Network.read (read path)); print_endline "valid"
    | [ _; path; certificates; pixels ] ->
        let net = Network.read (read path) in
        let lines = List.filter (( <> ) "") (String.split_on_char '\n' (read certificates)) and images = images net (read pixels) in
        if List.length lines <> List.length images then refuse "there are %d certificates for %d images" (List.length lines) (List.length images);
        print_endline "valid";
        let judged image line = let said = verdict net image line in print_endline said; said = "proved" in
        if List.mem false (List.map2 judged images lines) then exit 1
    | _ -> prerr_endline "usage: checker NETWORK [CERTIFICATES IMAGES]"; exit 2
  with
  | Wrong why -> refused why
  | Unix.Unix_error (error, _, path) -> refused (Printf.sprintf "%s: %s" path (Unix.error_message error))
  | Sys_error why -> refused why
  | Stack_overflow -> refused "it is too large for the stack: raise the limit with `ulimit -s`"
