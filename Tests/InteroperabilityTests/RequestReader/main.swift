// Reads lines of hexadecimal digits, each the bytes of a client, and writes for each what the module HTTP reads from
// them: words separated by spaces. `head H` (the bytes of a head), `body H` (those of a complete body), `part H` (those
// of an incomplete one), `close` (the client wants no further response), or last `rejected STATUS SENTENCE`.

import HTTP

func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
  bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}

func words(_ input: [UInt8]) -> [String] {
  var (parser, offset, words) = (RequestParser(), 0, [String]())
  var isLast = false
  do throws(Rejection) {
    while !isLast, let head = try parser.parse(input.span.extracting(offset..<input.count)) {
      words += ["head", hexadecimal(head.bytes)]
      offset += head.byteCount
      var (decoder, body) = (BodyDecoder(head.framing), [UInt8]())
      words += ["part", ""]
      while case .data(let range) = try decoder.next(in: input.span, from: &offset) {
        body += input[range]
        words[words.count - 1] = hexadecimal(body)
      }
      guard decoder.isDone else { return words }
      words[words.count - 2] = "body"
      isLast = !head.keepsConnection
    }
  } catch { words += ["rejected", String(error.status.rawValue), error.detail] }
  return isLast ? words + ["close"] : words
}

while let line = readLine() {
  let digits = line.utf8.compactMap { Character(Unicode.Scalar($0)).hexDigitValue }
  print(
    words(stride(from: 0, to: digits.count - 1, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }).joined(
      separator: " "))
}
