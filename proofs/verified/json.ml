(* JSON as Python's json module reads it, within limits: no key twice, no long number, nothing
   nested deep, and no more than [memory] bytes, counted as railopt/checker.py counts them. *)

exception Bad of string

type t =
  | Null
  | Bool of bool
  | Int of Z.t
  | Float of string  (* its text *)
  | Str of string  (* UTF-8 *)
  | List of t list
  | Obj of (string * t) list

let memory = 1 lsl 28
let digits = 1300
let depth = 200
let bad text = raise (Bad text)
let is_digit c = c >= '0' && c <= '9'

let check_limits text =
  let nodes = ref 0 and elements = ref 0 and run = ref 0 in
  let see c =
    (match c with '[' | '{' | ':' -> incr nodes | ',' -> incr elements | _ -> ());
    run := if is_digit c then !run + 1 else 0;
    if !run > digits then bad (Printf.sprintf "a number of more than %d digits" digits)
  in
  String.iter see text;
  if (250 * !nodes) + (40 * !elements) + (4 * String.length text) > memory then
    bad "more than 256 MiB to read"

(* A reader is a text and a position in it. *)
type reader = { text : string; mutable at : int }

let peek r = if r.at < String.length r.text then r.text.[r.at] else '\000'
let ended r = r.at >= String.length r.text

let rec blanks r =
  match peek r with
  | (' ' | '\t' | '\n' | '\r') when not (ended r) ->
      r.at <- r.at + 1;
      blanks r
  | _ -> ()

let expect r c =
  if ended r || peek r <> c then bad (Printf.sprintf "expected %C at byte %d" c r.at);
  r.at <- r.at + 1

let word r text value =
  let n = String.length text in
  if r.at + n > String.length r.text || String.sub r.text r.at n <> text then
    bad (Printf.sprintf "unexpected text at byte %d" r.at);
  r.at <- r.at + n;
  value

let hex4 r =
  if r.at + 4 > String.length r.text then bad "a broken escape";
  let digit c =
    match c with
    | '0' .. '9' -> Char.code c - 48
    | 'a' .. 'f' -> Char.code c - 87
    | 'A' .. 'F' -> Char.code c - 55
    | _ -> bad "a broken escape"
  in
  let code = ref 0 in
  for i = r.at to r.at + 3 do
    code := (!code * 16) + digit r.text.[i]
  done;
  r.at <- r.at + 4;
  !code

(* The character of an escape \uXXXX, or of two that are a surrogate pair. *)
let unicode r =
  let high = hex4 r in
  if high land 0xF800 <> 0xD800 then Uchar.of_int high
  else if high >= 0xDC00 || r.at + 2 > String.length r.text then bad "half a character"
  else if String.sub r.text r.at 2 <> "\\u" then bad "half a character"
  else begin
    r.at <- r.at + 2;
    let low = hex4 r in
    if low land 0xFC00 <> 0xDC00 then bad "half a character";
    Uchar.of_int (0x10000 + ((high land 0x3FF) lsl 10) + (low land 0x3FF))
  end

let string r =
  expect r '"';
  let out = Buffer.create 16 in
  let rec next () =
    if ended r then bad "a string without end";
    let c = r.text.[r.at] in
    r.at <- r.at + 1;
    match c with
    | '"' -> Buffer.contents out
    | '\\' -> escape ()
    | c when c < ' ' -> bad "a control character in a string"
    | c ->
        Buffer.add_char out c;
        next ()
  and escape () =
    let c = peek r in
    r.at <- r.at + 1;
    (match c with
    | '"' | '\\' | '/' -> Buffer.add_char out c
    | 'b' -> Buffer.add_char out '\b'
    | 'f' -> Buffer.add_char out '\012'
    | 'n' -> Buffer.add_char out '\n'
    | 'r' -> Buffer.add_char out '\r'
    | 't' -> Buffer.add_char out '\t'
    | 'u' -> Buffer.add_utf_8_uchar out (unicode r)
    | _ -> bad "a broken escape");
    next ()
  in
  next ()

let number r =
  let start = r.at in
  let skip () =
    let from = r.at in
    while (not (ended r)) && is_digit (peek r) do
      r.at <- r.at + 1
    done;
    if r.at = from then bad "a broken number"
  in
  if peek r = '-' then r.at <- r.at + 1;
  if peek r = '0' then r.at <- r.at + 1 else skip ();
  let whole = r.at in
  if peek r = '.' then (r.at <- r.at + 1; skip ());
  if peek r = 'e' || peek r = 'E' then begin
    r.at <- r.at + 1;
    if peek r = '+' || peek r = '-' then r.at <- r.at + 1;
    skip ()
  end;
  let text = String.sub r.text start (r.at - start) in
  if r.at > whole then Float text else Int (Z.of_string text)

(* The items of a list or an object up to its [last] character; the opening one was read. *)
let items r last item =
  let rec more read =
    let read = item () :: read in
    blanks r;
    if peek r = ',' then (r.at <- r.at + 1; more read) else (expect r last; List.rev read)
  in
  blanks r;
  if peek r = last then (r.at <- r.at + 1; []) else more []

let no_key_twice pairs =
  let keys = List.sort compare (List.map fst pairs) in
  let rec check = function
    | a :: (b :: _ as rest) ->
        if String.equal a b then bad "an object has a key twice";
        check rest
    | _ -> ()
  in
  check keys

let rec value r level =
  if level > depth then bad "nested too deep";
  blanks r;
  if ended r then bad "it ends early";
  match peek r with
  | '{' ->
      r.at <- r.at + 1;
      let pairs = items r '}' (fun () -> pair r level) in
      no_key_twice pairs;
      Obj pairs
  | '[' ->
      r.at <- r.at + 1;
      List (items r ']' (fun () -> value r (level + 1)))
  | '"' -> Str (string r)
  | 't' -> word r "true" (Bool true)
  | 'f' -> word r "false" (Bool false)
  | 'n' -> word r "null" Null
  | 'N' -> word r "NaN" (Float "NaN")
  | 'I' -> word r "Infinity" (Float "Infinity")
  | '-' when r.at + 1 < String.length r.text && r.text.[r.at + 1] = 'I' ->
      word r "-Infinity" (Float "-Infinity")
  | _ -> number r

and pair r level =
  blanks r;
  let key = string r in
  blanks r;
  expect r ':';
  (key, value r (level + 1))

let valid_utf_8 text =
  let n = String.length text in
  let rec from i =
    i >= n
    ||
    let c = Char.code text.[i] in
    let trail k low high =
      i + k < n
      && (let second = Char.code text.[i + 1] in second >= low && second <= high)
      && (let ok = ref true in
          for j = i + 2 to i + k do
            if Char.code text.[j] land 0xC0 <> 0x80 then ok := false
          done;
          !ok)
      && from (i + k + 1)
    in
    if c < 0x80 then from (i + 1)
    else if c >= 0xC2 && c <= 0xDF then trail 1 0x80 0xBF
    else if c = 0xE0 then trail 2 0xA0 0xBF
    else if c = 0xED then trail 2 0x80 0x9F
    else if c >= 0xE1 && c <= 0xEF then trail 2 0x80 0xBF
    else if c = 0xF0 then trail 3 0x90 0xBF
    else if c >= 0xF1 && c <= 0xF3 then trail 3 0x80 0xBF
    else if c = 0xF4 then trail 3 0x80 0x8F
    else false
  in
  from 0

let parsed text =
  check_limits text;
  if not (valid_utf_8 text) then bad "not UTF-8";
  let r = { text; at = 0 } in
  let found = value r 0 in
  blanks r;
  if not (ended r) then bad "more behind its end";
  found

(* The text that Python's json.dumps writes with sorted keys and no blanks: digests are of it. *)
let quoted text =
  let out = Buffer.create (String.length text + 2) in
  let unit code = Buffer.add_string out (Printf.sprintf "\\u%04x" code) in
  let add code =
    match Char.chr (code land 0xFF) with
    | '"' when code < 0x80 -> Buffer.add_string out "\\\""
    | '\\' when code < 0x80 -> Buffer.add_string out "\\\\"
    | '\n' when code < 0x80 -> Buffer.add_string out "\\n"
    | '\r' when code < 0x80 -> Buffer.add_string out "\\r"
    | '\t' when code < 0x80 -> Buffer.add_string out "\\t"
    | '\b' when code < 0x80 -> Buffer.add_string out "\\b"
    | '\012' when code < 0x80 -> Buffer.add_string out "\\f"
    | c when code >= 0x20 && code < 0x7F -> Buffer.add_char out c
    | _ when code >= 0x10000 ->
        unit (0xD800 + ((code - 0x10000) lsr 10));
        unit (0xDC00 + ((code - 0x10000) land 0x3FF))
    | _ -> unit code
  in
  let n = String.length text in
  let rec from i =
    if i < n then begin
      let c = Char.code text.[i] in
      let more = if c < 0x80 then 0 else if c < 0xE0 then 1 else if c < 0xF0 then 2 else 3 in
      let code = ref (if more = 0 then c else c land (0x3F lsr more)) in
      for j = i + 1 to i + more do
        code := (!code lsl 6) lor (Char.code text.[j] land 0x3F)
      done;
      add !code;
      from (i + more + 1)
    end
  in
  Buffer.add_char out '"';
  from 0;
  Buffer.add_char out '"';
  Buffer.contents out

let rec dumped = function
  | Null -> "null"
  | Bool b -> string_of_bool b
  | Int n -> Z.to_string n
  | Float text -> text
  | Str text -> quoted text
  | List values -> "[" ^ String.concat "," (List.map dumped values) ^ "]"
  | Obj pairs ->
      let sorted = List.sort (fun (a, _) (b, _) -> compare a b) pairs in
      let pair (key, value) = quoted key ^ ":" ^ dumped value in
      "{" ^ String.concat "," (List.map pair sorted) ^ "}"
