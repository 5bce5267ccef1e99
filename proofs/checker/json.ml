(* JSON in the one form that docs/format.md allows, that of Python's json.dumps: a text has one reading, and a value one
   text. Strings and numbers are kept as they stand in the text. *)

type t =
  | Null
  | Bool of bool
  | Whole of string
  | Fraction of string
  | Text of string  (* what is between the quotes, escapes and all *)
  | List of t list
  | Object of (string * t) list

exception Wrong of string

let wrong text = raise (Wrong text)
let deepest = 32  (* more than any value that is allowed has *)

(* The number as Python writes it: the fewest digits that read back as the same float64, and of these the nearest. Below a
   power of two floats are closer together than above, so there the next decimal may read back where the nearest does
   not. *)
let shortest x =
  let size = Float.abs x in
  let rec search n =  (* n digits after the first: the digits as a whole number, and the exponent of the first *)
    let text = Printf.sprintf "%.*e" n size in
    let mark = String.index text 'e' in
    let digits = int_of_string (String.concat "" (String.split_on_char '.' (String.sub text 0 mark))) in
    let exponent = int_of_float (float_of_string (String.sub text (mark + 1) (String.length text - mark - 1))) in
    let reads_back digits = float_of_string (Printf.sprintf "%de%d" digits (exponent - n)) = size in
    if n >= 16 || reads_back digits then (string_of_int digits, exponent)
    else if reads_back (digits + 1) then (string_of_int (digits + 1), exponent)
    else search (n + 1)
  in
  let all, exponent = search 0 in
  let n = String.length all in
  let plain =
    if exponent < -4 || exponent >= 16 then
      let rest = if n = 1 then "" else "." ^ String.sub all 1 (n - 1) in
      Printf.sprintf "%c%se%c%02d" all.[0] rest (if exponent < 0 then '-' else '+') (abs exponent)
    else if exponent < 0 then "0." ^ String.make (-exponent - 1) '0' ^ all
    else if n <= exponent + 1 then all ^ String.make (exponent + 1 - n) '0' ^ ".0"
    else String.sub all 0 (exponent + 1) ^ "." ^ String.sub all (exponent + 1) (n - exponent - 1)
  in
  (if Float.sign_bit x then "-" else "") ^ plain

let number text =
  let size = String.length text in
  let digits = if size > 0 && text.[0] = '-' then String.sub text 1 (size - 1) else text in
  if digits <> "" && String.for_all (fun c -> '0' <= c && c <= '9') digits then
    if String.length digits > 4300 || text = "-0" || (digits.[0] = '0' && digits <> "0") then wrong "a number is not in its form"
    else Whole text
  else
    match float_of_string_opt text with
    | Some x when Float.is_finite x && shortest x = text -> Fraction text
    | _ -> wrong "a number is not in its form"

(* The code of \uxxxx, four digits in lower case, at this place. *)
let hexadecimal text place =
  if place + 6 > String.length text || String.sub text place 2 <> "\\u" then wrong "half of a surrogate pair";
  let digits = String.sub text (place + 2) 4 in
  if not (String.for_all (fun c -> ('0' <= c && c <= '9') || ('a' <= c && c <= 'f')) digits) then wrong "an escape is not in its form";
  int_of_string ("0x" ^ digits)

(* The character at a place of a string, as a code point, and the place after it. *)
let character text place =
  let c = text.[place] in
  if c <> '\\' then if c < ' ' || c > '~' then wrong "a character is not ASCII" else (Char.code c, place + 1)
  else if place + 1 >= String.length text then wrong "a string does not end"
  else
    match text.[place + 1] with
    | '"' -> (34, place + 2)
    | '\\' -> (92, place + 2)
    | 'b' -> (8, place + 2)
    | 't' -> (9, place + 2)
    | 'n' -> (10, place + 2)
    | 'f' -> (12, place + 2)
    | 'r' -> (13, place + 2)
    | 'u' ->
        let code = hexadecimal text place in
        if List.mem code [ 8; 9; 10; 12; 13 ] || (code >= 0x20 && code < 0x7f) then wrong "an escape is not in its form";
        if code land 0xfc00 = 0xdc00 then wrong "half of a surrogate pair";
        if code land 0xfc00 <> 0xd800 then (code, place + 6)
        else
          let low = hexadecimal text (place + 6) in
          if low land 0xfc00 <> 0xdc00 then wrong "half of a surrogate pair";
          (0x10000 + ((code land 0x3ff) lsl 10) + (low land 0x3ff), place + 12)
    | _ -> wrong "an escape is not in its form"

(* The code points of a string as it stands in a text: strings are sorted by these. *)
let code_points text =
  let rec from place = if place = String.length text then [] else
    let code, next = character text place in
    code :: from next
  in
  from 0

(* A value; [space] tells whether a space follows each comma and colon. *)
let parse ~space text =
  let size = String.length text in
  let after sign = if space then sign ^ " " else sign in
  let place = ref 0 in
  let next_is mark = let n = String.length mark in !place + n <= size && String.sub text !place n = mark in
  let took mark = next_is mark && (place := !place + String.length mark; true) in
  let take mark = if not (took mark) then wrong (Printf.sprintf "%S is expected at character %d" mark !place) in
  let quoted () =
    take "\"";
    let first = !place in
    while !place < size && text.[!place] <> '"' do place := snd (character text !place) done;
    take "\"";
    String.sub text first (!place - 1 - first)
  in
  let items close one =
    let found = ref [] in
    if not (took close) then begin
      found := [ one () ];
      while not (took close) do take (after ","); found := one () :: !found done
    end;
    List.rev !found
  in
  let rec value depth () =
    if depth > deepest then wrong "too many objects and lists are inside each other";
    if took "null" then Null else if took "true" then Bool true else if took "false" then Bool false
    else if next_is "\"" then Text (quoted ())
    else if took "[" then List (items "]" (value (depth + 1)))
    else if took "{" then begin
      let found = items "}" (fun () -> let key = quoted () in take (after ":"); (key, value (depth + 1) ())) in
      let keys = List.map fst found in
      if List.length (List.sort_uniq compare keys) <> List.length keys then wrong "a key appears twice";
      Object found
    end else begin
      let first = !place in
      while !place < size && String.contains "+-.0123456789e" text.[!place] do incr place done;
      number (String.sub text first (!place - first))
    end
  in
  let result = value 1 () in
  if !place <> size then wrong (Printf.sprintf "the text should end at character %d" !place);
  result

(* The text of a value, with spaces, the keys of all objects sorted by their code points. *)
let rec sorted value =
  let join left right parts = left ^ String.concat ", " parts ^ right in
  match value with
  | Null -> "null"
  | Bool b -> string_of_bool b
  | Whole text | Fraction text -> text
  | Text text -> "\"" ^ text ^ "\""
  | List values -> join "[" "]" (List.map sorted values)
  | Object pairs ->
      let by_key (a, _) (b, _) = compare (code_points a) (code_points b) in
      join "{" "}" (List.map (fun (key, v) -> Printf.sprintf "\"%s\": %s" key (sorted v)) (List.sort by_key pairs))

(* How many objects and lists are inside each other. *)
let rec nesting value =
  let inside values = 1 + List.fold_left (fun most v -> max most (nesting v)) 0 values in
  match value with List values -> inside values | Object pairs -> inside (List.map snd pairs) | _ -> 0
