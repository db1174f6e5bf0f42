(* Plan files: a zip of stored .npy arrays of integers and a header, as railopt/checker.py reads it.
   Raises [Unreadable] for what is no plan, [Wrong] for a plan that is not what it should be. *)

open Checker

exception Unreadable of string
exception Wrong of string

let unreadable text = raise (Unreadable text)
let wrong text = raise (Wrong text)
let directory_limit = 1 lsl 16

let read_file path limit =
  let channel = open_in_bin path in
  Fun.protect ~finally:(fun () -> close_in channel) (fun () ->
      really_input_string channel (min limit (in_channel_length channel)))

(* ---------------------------------------------------------------- the zip *)

let u16 = String.get_uint16_le
let u32 text at = Int32.to_int (String.get_int32_le text at) land 0xFFFFFFFF

(* CRC-32, eight bytes at a time: table k is for a byte that k bytes follow. *)
let crc_tables =
  let entry n =
    let c = ref n in
    for _ = 0 to 7 do
      c := if !c land 1 = 1 then (!c lsr 1) lxor 0xEDB88320 else !c lsr 1
    done;
    !c
  in
  let tables = Array.init 8 (fun _ -> Array.init 256 entry) in
  for k = 1 to 7 do
    let before = tables.(k - 1) in
    tables.(k) <- Array.map (fun c -> tables.(0).(c land 0xFF) lxor (c lsr 8)) before
  done;
  tables

let crc text at length =
  let t = crc_tables in
  let t0, t1, t2, t3 = (t.(0), t.(1), t.(2), t.(3)) in
  let t4, t5, t6, t7 = (t.(4), t.(5), t.(6), t.(7)) in
  let c = ref 0xFFFFFFFF and i = ref at in
  while !i + 8 <= at + length do
    let low = !c lxor u32 text !i and high = u32 text (!i + 4) in
    c := t7.(low land 0xFF) lxor t6.((low lsr 8) land 0xFF) lxor t5.((low lsr 16) land 0xFF)
         lxor t4.(low lsr 24) lxor t3.(high land 0xFF) lxor t2.((high lsr 8) land 0xFF)
         lxor t1.((high lsr 16) land 0xFF) lxor t0.(high lsr 24);
    i := !i + 8
  done;
  for j = !i to at + length - 1 do
    c := t0.((!c lxor Char.code text.[j]) land 0xFF) lxor (!c lsr 8)
  done;
  !c lxor 0xFFFFFFFF

type member = { at : int; length : int }  (* where its bytes lie in the file *)

(* The member that a record of the directory tells of, and where the next record begins. *)
let member text at =
  if u32 text at <> 0x02014B50 then unreadable "a broken directory";
  let flags = u16 text (at + 8) and packing = u16 text (at + 10) and sum = u32 text (at + 16) in
  let packed = u32 text (at + 20) and length = u32 text (at + 24) in
  let name_length = u16 text (at + 28) in
  let extra = u16 text (at + 30) and comment = u16 text (at + 32) in
  let local = u32 text (at + 42) in
  let name = String.sub text (at + 46) name_length in
  if Char.code text.[at + 6] > 63 then unreadable "a zip of a later version";
  if flags land 0x61 <> 0 || packing <> 0 || packed <> length then
    unreadable "a member that is encrypted or compressed";
  if u32 text local <> 0x04034B50
     || String.sub text (local + 30) (u16 text (local + 26)) <> name then
    unreadable "a member under another name";
  let start = local + 30 + u16 text (local + 26) + u16 text (local + 28) in
  if start + length > String.length text || crc text start length <> sum then
    unreadable "a damaged member";
  ((name, { at = start; length }), at + 46 + name_length + extra + comment)

let members text =
  let size = String.length text in
  if size < 22 then unreadable "no zip";
  let record = size - 22 in
  let length = u32 text (record + 12) and first = u32 text (record + 16) in
  if u32 text record <> 0x06054B50 || (size >= 42 && u32 text (size - 42) = 0x07064B50)
     || length > directory_limit || first + length <> record
  then unreadable "a zip with a comment, of many members or beyond 4 GiB";
  let rec read at found = if at >= record then List.rev found
    else let one, next = member text at in read next (one :: found) in
  let found = read first [] in
  if List.length found <> u16 text (record + 10) then unreadable "a broken directory";
  let names = List.sort_uniq compare (List.map fst found) in
  if List.length names < List.length found then unreadable "a member twice";
  if List.fold_left (fun n (_, m) -> n + m.length) 0 found > size then unreadable "members overlap";
  found

(* ---------------------------------------------------------------- arrays *)

type items = { item : string; shape : int list; shape_text : string; data : member }

let widths =
  [ ("|i1", 1); ("|u1", 1); ("<i2", 2); ("<u2", 2); ("<i4", 4); ("<u4", 4); ("<i8", 8); ("<u8", 8) ]

(* "(3, 4)" as [3; 4]: at most two numbers of at most 18 digits. *)
let shape_of text =
  let inner = String.sub text 1 (String.length text - 2) in
  let part word =
    let blank = word <> "" && word.[0] = ' ' in
    let word = if blank then String.sub word 1 (String.length word - 1) else word in
    if word = "" || String.length word > 18 || not (String.for_all Json.is_digit word) then
      unreadable "an array of another shape";
    int_of_string ("0u" ^ word)
  in
  match String.split_on_char ',' inner with
  | [ "" ] -> []
  | [ a; "" ] | [ a ] -> [ part a ]
  | [ a; b ] when b <> "" && b.[0] = ' ' -> [ part a; part b ]
  | _ -> unreadable "an array of another shape"

let prefix = "{'descr': '"
let middle = "', 'fortran_order': False, 'shape': "

let array text { at; length } =
  let no () = unreadable "an array that is not of integers, in C order and little-endian" in
  let part from n = if from + n > at + length || n < 0 then no () else String.sub text from n in
  if part at 8 <> "\x93NUMPY\x01\x00" then no ();
  let header_length = u16 (part (at + 8) 2) 0 in
  let header = part (at + 10) header_length in
  let p = String.length prefix and m = String.length middle in
  let shape_at = p + 3 + m in
  if header_length < shape_at then no ();
  if String.sub header 0 p <> prefix || String.sub header (p + 3) m <> middle then no ();
  let item = String.sub header p 3 in
  let close = match String.index_from_opt header shape_at ')' with Some i -> i | None -> no () in
  let shape_text = String.sub header shape_at (close + 1 - shape_at) in
  let rest = String.sub header (close + 1) (header_length - close - 1) in
  if shape_text.[0] <> '(' || String.length rest < 4
     || "" <> String.trim (String.sub rest 3 (String.length rest - 4))
     || String.sub rest 0 3 <> ", }" || rest.[String.length rest - 1] <> '\n'
  then no ();
  let width = match List.assoc_opt item widths with Some w -> w | None -> no () in
  let shape = shape_of shape_text in
  let data = { at = at + 10 + header_length; length = length - 10 - header_length } in
  let times n k = if k > 0 && n > max_int / k then no () else n * k in
  let count = List.fold_left times 1 shape in
  if count > data.length || count * width <> data.length then unreadable "an array of another size";
  { item; shape; shape_text; data }

(* The [i]-th integer of an array; none is below 0. *)
let value text { item; data; _ } =
  let at = data.at in
  let whole n = if n < 0 then wrong "a number below 0" else Z.of_int n in
  match item with
  | "|i1" -> fun i -> whole (String.get_int8 text (at + i))
  | "|u1" -> fun i -> whole (String.get_uint8 text (at + i))
  | "<i2" -> fun i -> whole (String.get_int16_le text (at + (2 * i)))
  | "<u2" -> fun i -> whole (String.get_uint16_le text (at + (2 * i)))
  | "<i4" -> fun i -> whole (Int32.to_int (String.get_int32_le text (at + (4 * i))))
  | "<u4" -> fun i -> whole (u32 text (at + (4 * i)))
  | _ ->
      fun i ->
        let n = String.get_int64_le text (at + (8 * i)) in
        if Int64.compare n 0L >= 0 then Z.of_int64 n
        else if item = "<i8" then wrong "a number below 0"
        else Z.add (Z.of_int64 n) (Z.shift_left Z.one 64)

let count { shape; _ } = List.fold_left ( * ) 1 shape

(* ---------------------------------------------------------------- plans *)

type t = { file : file; digest : string; header : (string * Json.t) list; text : string;
           arrays : (string * items) list }

let column plan_text arrays name =
  let items = List.assoc name arrays in
  (count items, value plan_text items)

let listed (n, get) =
  let rec from i rest = if i < 0 then rest else from (i - 1) (get i :: rest) in
  from (n - 1) []

let table text arrays name =
  match List.assoc name arrays with
  | { shape = [ height; width ]; _ } as items ->
      let get = value text items in
      List.init height (fun k -> List.init width (fun n -> get ((k * width) + n)))
  | _ -> wrong "expected a table [node, rail]"

(* Of nodes, rails, and GPUs per node. *)
let most = 1 lsl 20

(* Rows of bits, one per GPU of the node, are empty or have the chunk's own end among them. *)
let need_targets text arrays many gpus =
  let { data; _ } = List.assoc "targets" arrays and width = ((gpus - 1) / 8) + 1 in
  if data.length <> many * width then wrong "targets: expected bits in octets";
  let end_of = value text (List.assoc "dst_gpu" arrays) in
  let spare = (1 lsl ((8 * width) - gpus)) - 1 in
  for i = 0 to many - 1 do
    let octet k = Char.code text.[data.at + (i * width) + k] in
    if octet (width - 1) land spare <> 0 then wrong "targets: expected bits of a node's GPUs alone";
    let bit = Z.to_int (Z.erem (end_of i) (Z.of_int gpus)) in
    let listed = (octet (bit / 8) lsr (7 - (bit mod 8))) land 1 = 1 in
    let rec empty k = k = width || (octet k = 0 && empty (k + 1)) in
    if not (listed || empty 0) then wrong "a dst_gpu that is not one of its targets"
  done

(* What a plan says twice it says alike: nodes, rails, chunks, and the nodes of GPUs. *)
let need_coherent text header arrays =
  let fabric = match List.assoc_opt "fabric" header with
    | Some (Json.Obj fabric) -> fabric
    | _ -> wrong "a plan without a fabric" in
  let number name pairs = match List.assoc_opt name pairs with
    | Some (Json.Int n) when Z.sign n > 0 && Z.leq n (Z.of_int most) -> Z.to_int n
    | _ -> wrong (name ^ " of the plan: expected a whole number in its range") in
  let shape name = match List.assoc_opt name arrays with
    | Some items -> items.shape
    | None -> wrong ("a plan without " ^ name) in
  let need name form = if shape name <> form then wrong (name ^ " of another shape") in
  let form = [ number "nodes" fabric; number "rails" fabric ] in
  List.iter (fun name -> need name form) [ "tx"; "rx"; "send"; "recv" ];
  let gpus = number "chunk_gpus" header in
  if number "gpus" fabric <> gpus && gpus <> 1 then
    wrong "chunks of other GPUs than those of the fabric";
  let many = List.fold_left ( * ) 1 (shape "size") in
  let columns = [ "size"; "src"; "dst"; "rail"; "src_gpu"; "dst_gpu"; "flow"; "offset" ] in
  List.iter (fun name -> need name [ many ]) columns;
  let optional name form = if List.mem_assoc name arrays then need name form in
  let known = columns @ [ "tx"; "rx"; "send"; "recv"; "stage"; "targets" ] in
  if not (List.for_all (fun (name, _) -> List.mem name known) arrays) then
    wrong "a plan with arrays that are not a plan's";
  optional "stage" [ many ];
  optional "targets" [ many; ((gpus - 1) / 8) + 1 ];
  let lie ends here =
    let end_of = value text (List.assoc ends arrays) in
    let node_of = value text (List.assoc here arrays) and gpus = Z.of_int gpus in
    for i = 0 to many - 1 do
      if not (Z.equal (Z.fdiv (end_of i) gpus) (node_of i)) then
        wrong "GPUs in other nodes than their chunks"
    done in
  let whole name =  (* [value] refuses a number below 0 *)
    let get = value text (List.assoc name arrays) in
    for i = 0 to many - 1 do ignore (get i) done in
  List.iter whole [ "flow"; "offset" ];
  if List.mem_assoc "stage" arrays then whole "stage";
  lie "src_gpu" "src";
  lie "dst_gpu" "dst";
  if List.mem_assoc "targets" arrays then need_targets text arrays many gpus

let chunks text arrays =
  let (n, src), (_, dst), (_, size) =
    (column text arrays "src", column text arrays "dst", column text arrays "size") in
  let rec from i rest =
    if i < 0 then rest else from (i - 1) (chunk_of (src i) (dst i) (size i) :: rest) in
  from (n - 1) []

(* "p" or "p/q" in lowest terms, as Python writes a fraction; 0 or more. *)
let reduced text =
  let fine c = Json.is_digit c || c = '/' in
  let ok = String.length text < 4000 && text <> "" && String.for_all fine text in
  match if ok then Q.of_string text else Q.undef with
  | q when Q.is_real q && Q.to_string q = text -> (Q.num q, Q.den q)
  | _ | (exception _) -> wrong "a makespan that is no fraction"

let digest_of text header arrays =
  let hash = Blake2b.start () in
  Blake2b.update_string hash (Json.dumped (Json.Obj header));
  let cover (name, { item; shape_text; data; _ }) =
    Blake2b.update_string hash (Printf.sprintf "%s|%s|%s|" name item shape_text);
    Blake2b.update hash (Bytes.unsafe_of_string text) data.at data.length
  in
  List.iter cover (List.sort (fun (a, _) (b, _) -> compare a b) arrays);
  Blake2b.finish hash

(* A float may be written in several ways: digests of it would differ between readers. *)
let rec need_whole = function
  | Json.Float text -> unreadable (text ^ ": expected whole numbers alone")
  | Json.List values -> List.iter need_whole values
  | Json.Obj pairs -> List.iter (fun (_, one) -> need_whole one) pairs
  | Json.Null | Json.Bool _ | Json.Int _ | Json.Str _ -> ()

let unpacked text =
  let found = members text in
  let header = match List.assoc_opt "header.json" found with
    | Some { at; length } -> Json.parsed (String.sub text at length)
    | None -> unreadable "no header.json" in
  let named (name, m) =
    if name = "header.json" then None
    else match Filename.chop_suffix_opt ~suffix:".npy" name with
      | Some plain -> Some (plain, array text m)
      | None -> unreadable "a member that is no array" in
  need_whole header;
  match header with
  | Json.Obj pairs -> (pairs, List.filter_map named found)
  | _ -> unreadable "a header that is no object"

let read path =
  let text = read_file path (1 lsl 32) in
  let header, arrays =
    try unpacked text with
    | Json.Bad why | Invalid_argument why -> unreadable ("not a readable plan: " ^ why)
  in
  let field name = List.assoc_opt name header in
  if field "railopt" <> Some (Json.Str "plan") || field "version" <> Some (Json.Int Z.one) then
    wrong "expected a plan of version 1";
  let digest = digest_of text (List.remove_assoc "digest" header) arrays in
  if field "digest" <> Some (Json.Str digest) then wrong "the content does not match its digest";
  need_coherent text header arrays;
  let table, column = (table text arrays, fun name -> listed (column text arrays name)) in
  let time = match field "makespan" with
    | Some (Json.Str text) -> reduced text
    | _ -> wrong "no makespan" in
  let file =
    { file_tx = table "tx"; file_rx = table "rx"; file_chunks = chunks text arrays;
      file_rail = column "rail"; file_time = time;
      file_send = column "send"; file_recv = column "recv"; file_inner = None } in
  { file; digest; header; text; arrays }

(* Whether two plans say the same of their chunks, by column, and of their fabric. *)
let same_chunks a b =
  let planned = [ "rail"; "stage"; "send"; "recv" ] in
  let identity { text; arrays; header; _ } =
    let said name = Json.dumped (List.assoc name header) in
    (said "chunk_gpus", said "fabric",
    List.filter (fun (name, _) -> not (List.mem name planned)) arrays
    |> List.map (fun (name, { item; shape_text; data; _ }) ->
        (name, item, shape_text, String.sub text data.at data.length))
    |> List.sort compare) in
  identity a = identity b
