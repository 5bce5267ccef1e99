(* Reads an exact network, as docs/format.md says, into the network that the theorems are about. *)

open Json

let refuse format = Printf.ksprintf (fun text -> raise (Wrong text)) format
let most_width = 1 lsl 20

(* A name of a file as a message shows it: its beginning, if it is long. *)
let brief name = if String.length name <= 60 then name else String.sub name 0 60 ^ "..."

(* OCaml's integers as Coq's. *)
let rec positive n = if n = 1 then Proved.XH else if n land 1 = 0 then Proved.XO (positive (n lsr 1)) else Proved.XI (positive (n lsr 1))
let z n = if n = 0 then Proved.Z0 else if n > 0 then Proved.Zpos (positive n) else Proved.Zneg (positive (-n))
let nat n = let rec from n sum = if n = 0 then sum else from (n - 1) (Proved.S sum) in from n Proved.O

(* Whole numbers in JSON that fit OCaml's, and that lie in a range. *)
let whole what least most = function
  | Whole text when String.length text <= 18 && least <= int_of_string text && int_of_string text <= most -> int_of_string text
  | _ -> refuse "%s is not a whole number from %d to %d" what least most

let fields what names = function
  | Object pairs when List.sort compare (List.map fst pairs) = List.sort compare names -> List.map (fun name -> List.assoc name pairs) names
  | _ -> refuse "%s is not an object with the keys %s" what (String.concat ", " names)

let list what = function List values -> values | _ -> refuse "%s is not a list" what
let text what = function Text text -> text | _ -> refuse "%s is not a text" what

type tensor = { kind : string; sides : int list; first : int; last : int }  (* its bytes: from first to before last *)

let product = List.fold_left ( * ) 1
let size_of kind = match kind with "U8" -> 1 | "I16" -> 2 | "I32" -> 4 | "F64" -> 8 | _ -> refuse "%S is no type of a tensor" (brief kind)

let tensor size (whole_name, entry) =
  let name = brief whole_name in
  match fields ("the entry of " ^ name) [ "dtype"; "shape"; "data_offsets" ] entry with
  | [ kind; sides; offsets ] -> (
      let kind = text "a type" kind and number = whole ("a number in the entry of " ^ name) 0 size in
      let sides = List.map number (list "a shape" sides) in
      if List.length sides < 1 || List.length sides > 3 || List.mem 0 sides then refuse "%s has no shape that is allowed" name;
      match List.map number (list "data_offsets" offsets) with
      | [ first; last ] ->
          let room = List.fold_left (fun room side -> if side > room then refuse "%s has fewer bytes than its shape" name else room / side) (last - first) sides in
          ignore room;
          if last - first <> product sides * size_of kind then refuse "the bytes of %s do not fit its shape" name;
          (whole_name, { kind; sides; first; last })
      | _ -> refuse "data_offsets of %s are not two numbers" name)
  | _ -> assert false

(* One tensor after the other, without gaps, up to the end of the file. *)
let without_gaps size tensors =
  let by_place (_, a) (_, b) = compare (a.first, a.last) (b.first, b.last) in
  let follow place (name, t) = if t.first <> place then refuse "%s does not follow the tensor before it" name else t.last in
  if List.fold_left follow 0 (List.sort by_place tensors) <> size then refuse "bytes follow the last tensor"

type stages = { crop : int option; clip : (int * int) option; pool : (int list * int) option; dists : (int * int) list; count : int option }

let layer_size what value =
  match List.map (whole what 1 most_width) (fields what [ "outputs"; "inputs" ] value) with
  | [ outputs; inputs ] -> (outputs, inputs)
  | _ -> assert false

(* The stages of a file of format 2, in the order that is allowed. *)
let read_stages values =
  let kind value = match value with Object pairs when List.mem_assoc "kind" pairs -> text "a kind" (List.assoc "kind" pairs) | _ -> refuse "a stage has no kind" in
  let others value = match value with Object pairs -> Object (List.remove_assoc "kind" pairs) | v -> v in
  let rest = ref values in
  let take name read = match !rest with v :: more when kind v = name -> rest := more; Some (read (others v)) | _ -> None in
  let pair what names read value = match List.map read (fields what names value) with [ a; b ] -> (a, b) | _ -> assert false in
  let crop = take "crop" (fun v -> whole "side" 1 most_width (List.hd (fields "crop" [ "side" ] v))) in
  let clip = take "clip" (pair "clip" [ "low"; "high" ] (whole "an end of clip" 0 max_int)) in
  let pool = take "pool" (fun v -> match fields "pool" [ "sizes"; "steps" ] v with
    | [ sizes; steps ] ->
        let sizes = List.map (whole "a size" 1 most_width) (list "sizes" sizes) in
        if sizes = [] || List.sort_uniq compare sizes <> List.sort compare sizes then refuse "the sizes of the pool are not different numbers";
        (sizes, whole "steps" 1 0x7fffffff steps)
    | _ -> assert false) in
  let rec dists () = match take "dist" (layer_size "the size of a dist stage") with Some size -> let more = dists () in size :: more | None -> [] in
  let dists = dists () in
  let count = take "sum" (fun v -> whole "count" 2 most_width (List.hd (fields "sum" [ "count" ] v))) in
  (match !rest with
   | [] -> ()
   | v :: _ when kind v = "head" -> refuse "it has a head, whose float64 arithmetic is outside what is proved: leave out --proved"
   | v :: _ -> refuse "a stage of kind %S is unknown, or not in its place" (brief (kind v)));
  if clip = None && pool = None && count = None then refuse "its format is for networks with clip, pool or sum alone";
  { crop; clip; pool; dists; count }

(* A layer: a bit for each entry, the weights of the kept ones, and the biases. *)
let layer data start tensors number (outputs, inputs) =
  let named part kinds =
    let name = Printf.sprintf "%d.%s" number part in
    let t = List.assoc name tensors in
    if not (List.mem t.kind kinds) then refuse "%s is of type %s" name t.kind;
    t
  in
  let mask = named "mask" [ "U8" ] and weight = named "weight" [ "I16"; "I32" ] and bias = named "bias" [ "I32" ] in
  let bytes = (inputs + 7) / 8 in
  if mask.sides <> [ outputs; bytes ] || bias.sides <> [ outputs ] || List.length weight.sides <> 1 then refuse "the tensors of layer %d have other shapes than the header says" number;
  let number_at t i =
    if t.kind = "I16" then String.get_int16_le data (start + t.first + 2 * i) else Int32.to_int (String.get_int32_le data (start + t.first + 4 * i)) in
  let used = ref 0 in
  let kept o i = Char.code data.[start + mask.first + o * bytes + i / 8] land (0x80 lsr (i mod 8)) <> 0 in
  let entry o i =
    if not (kept o i) then None
    else if i >= inputs then refuse "the mask of layer %d has bits beyond its inputs" number
    else if !used = product weight.sides then refuse "layer %d has fewer weights than entries" number
    else (incr used; Some (z (number_at weight (!used - 1))))
  in
  let rec row o i = if i = 8 * bytes then [] else let first = entry o i in let rest = row o (i + 1) in if i < inputs then first :: rest else rest in
  let rec neurons o = if o = outputs then [] else let weights = row o 0 in let rest = neurons (o + 1) in { Proved.weights; bias = z (number_at bias o) } :: rest in
  let neurons = neurons 0 in
  if !used <> product weight.sides then refuse "layer %d has more weights than entries" number;
  { Proved.bits = z (if weight.kind = "I16" then 16 else 32); neurons }

(* The header's entries, its tensors by name, and where their bytes start. *)
let headers data =
  let size = String.length data in
  if size < 8 || String.sub data 3 5 <> "\000\000\000\000\000" then refuse "it does not begin with the length of its JSON header";
  let length = Int64.to_int (String.get_int64_le data 0) in
  if length mod 8 <> 0 || length > 1 lsl 20 || 8 + length > size then refuse "it does not begin with the length of its JSON header, a multiple of 8";
  let last = ref (8 + length) in
  while !last > 8 && data.[!last - 1] = ' ' do decr last done;
  if 8 + length - !last >= 8 then refuse "more than 7 spaces follow its JSON header";
  match parse ~space:false (String.sub data 8 (!last - 8)) with
  | Object pairs -> (
      let metadata = match List.assoc_opt "__metadata__" pairs with Some v -> v | None -> Null in
      let inner = code_points (text "its inner header" (List.hd (fields "its metadata" [ "linfdist" ] metadata))) in
      if List.length inner > 1 lsl 18 then refuse "its inner header is longer than 2^18 characters";
      if List.exists (fun code -> code > 127) inner then refuse "its inner header is not ASCII";
      let inner = String.of_seq (Seq.map Char.chr (List.to_seq inner)) in
      let start = 8 + length in
      match parse ~space:true inner with
      | Object header -> (header, List.map (tensor (size - start)) (List.remove_assoc "__metadata__" pairs), start)
      | _ -> refuse "its inner header is not an object")
  | _ -> refuse "its header is not an object"

let hash data start header tensors =
  let part (name, t) =
    sorted (List [ Text name; Text t.kind; List (List.map (fun side -> Whole (string_of_int side)) t.sides) ])
    ^ String.sub data (start + t.first) (t.last - t.first)
  in
  let tensors = List.sort (fun (a, _) (b, _) -> compare a b) tensors in
  Sha256.hex (String.concat "" (sorted (Object (List.remove_assoc "sha256" header)) :: List.map part tensors))

type t = { proved : Proved.network; shape : int list; sha256 : string; domain_sha256 : string option }

let shape_text shape = String.concat "," (List.map string_of_int shape) ^ ":"

let read data =
  let header, tensors, start = headers data in
  let format = text "its format" (match List.assoc_opt "format" header with Some v -> v | None -> Null) in
  let staged = format = "linfdist-exact-2" in
  if format = "linfdist-exact-head-1" then refuse "it has a head, whose float64 arithmetic is outside what is proved: leave out --proved";
  if format <> "linfdist-exact-1" && not staged then refuse "its format %S is unknown" (brief format);
  let own = if staged then [ "stages" ] else [ "crop"; "layers" ] in
  ignore (fields "its header" ([ "format"; "k"; "shape"; "facts"; "sha256" ] @ own) (Object header));
  let get key = List.assoc key header in
  let k = whole "k" 0 7 (get "k") in
  let shape = List.map (whole "a side of its images" 1 most_width) (list "its shape" (get "shape")) in
  let c, h, w = match shape with [ c; h; w ] when c * h * w <= most_width -> (c, h, w) | _ -> refuse "its shape is not three numbers of at most 2^20 pixels" in
  (match get "facts" with Object _ as facts when nesting facts <= 16 -> () | _ -> refuse "its facts are no object, or too deep");
  let entries = list "its layers" (get (if staged then "stages" else "layers")) in
  if entries = [] || List.length entries > 1000 then refuse "it has no layers, or more than 1,000";
  let stages =
    if staged then read_stages entries
    else
      let crop = match get "crop" with Null -> None | v -> Some (whole "crop" 1 (min h w) v) in
      { crop; clip = None; pool = None; dists = List.map (layer_size "the size of a layer") entries; count = None }
  in
  if stages.dists = [] then refuse "it has no dist layer";
  let names = List.concat (List.mapi (fun l _ -> List.map (Printf.sprintf "%d.%s" l) [ "mask"; "weight"; "bias" ]) stages.dists) in
  if List.sort compare ("lower" :: "upper" :: names) <> List.sort compare (List.map fst tensors) then refuse "tensors are missing, or do not belong to its format";
  without_gaps (String.length data - start) tensors;
  let ends name =
    let t = List.assoc name tensors in
    if t.kind <> "U8" || t.sides <> shape then refuse "%s has another type or shape than its images" name;
    String.sub data (start + t.first) (t.last - t.first)
  in
  let lower = ends "lower" and upper = ends "upper" in
  let ranges = List.init (c * h * w) (fun i -> (z (Char.code lower.[i]), z (Char.code upper.[i]))) in
  let sha256 = hash data start header tensors in
  if text "its sha256" (get "sha256") <> sha256 then refuse "it is damaged or was changed: its content does not have the sha256 in its header";
  let proved = {
    Proved.shape = ((nat c, nat h), nat w); scale = nat k;
    crop_to = Option.map nat stages.crop;
    clip_to = Option.map (fun (low, high) -> (z low, z high)) stages.clip;
    pool_by = Option.map (fun (sizes, steps) -> (List.map nat sizes, positive steps)) stages.pool;
    layers = List.mapi (layer data start tensors) stages.dists;
    per_class = Option.map nat stages.count; domain = ranges } in
  if not (Proved.network_valid proved) then
    refuse "its numbers do not fit together: fewer than two classes, a layer with other inputs than the stage before it gives, a neuron without entries, values that a type cannot hold, or something left out that could win";
  let whole_cube = String.for_all (( = ) '\000') lower && String.for_all (( = ) '\255') upper in
  let domain_sha256 = if whole_cube then None else Some (Sha256.hex (shape_text [ 2 * c; h; w ] ^ lower ^ upper)) in
  { proved; shape; sha256; domain_sha256 }
