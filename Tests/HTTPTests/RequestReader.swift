import HTTP

/// Reads requests as a server does: it keeps what was not consumed, and continues each body with a restored decoder.
struct RequestReader {
  enum Found: Equatable {
    case head(RequestHead)
    case body([UInt8])
    case end
    case rejected(Rejection)
  }

  private var parser = RequestParser()
  private var body: BodyDecoder?
  private(set) var unread: [UInt8] = []
  private(set) var found: [Found] = []

  mutating func receive(_ bytes: some Sequence<UInt8>) {
    if case .rejected? = found.last { return }
    unread += bytes
    do throws(Rejection) {
      while true {
        guard let decoder = body else {
          let bytes = unread
          guard let head = try parser.parse(bytes.span) else { return }
          unread.removeFirst(head.byteCount)
          found.append(.head(head))
          body = BodyDecoder(head.framing)
          continue
        }
        guard try !readBody(decoder) else { return }
      }
    } catch { found.append(.rejected(error)) }
  }

  /// - Returns: whether bytes are missing.
  private mutating func readBody(_ decoder: BodyDecoder) throws(Rejection) -> Bool {
    var (decoder, offset) = (decoder, 0)
    let step = try decoder.next(in: unread.span, from: &offset)
    defer { unread.removeFirst(offset) }
    guard let restored = BodyDecoder(decoder.saved), restored == decoder else {
      preconditionFailure("\(decoder.saved) is not restored")
    }
    body = restored
    switch step {
    case .needsBytes: return true
    case .data(let range):
      if case .body(let start)? = found.last {
        found[found.count - 1] = .body(start + unread[range])
      } else {
        found.append(.body([UInt8](unread[range])))
      }
    case .end:
      found.append(.end)
      body = nil
    }
    return false
  }
}

/// What a server reads from these bytes if they arrive at once, and whether it is the same for other splits.
func readRequests(_ text: String, checkingSplits: Bool = true) -> [RequestReader.Found] {
  readRequests([UInt8](text.utf8), checkingSplits: checkingSplits)
}

func readRequests(_ bytes: [UInt8], checkingSplits: Bool = true) -> [RequestReader.Found] {
  var whole = RequestReader()
  whole.receive(bytes)
  guard checkingSplits else { return whole.found }
  var single = RequestReader()
  for byte in bytes { single.receive(CollectionOfOne(byte)) }
  precondition(single.found == whole.found, "single bytes: \(single.found), not \(whole.found)")
  for split in bytes.indices {
    var halves = RequestReader()
    halves.receive(bytes[..<split])
    halves.receive(bytes[split...])
    precondition(halves.found == whole.found, "split at \(split): \(halves.found), not \(whole.found)")
  }
  return whole.found
}

/// The first head; nil if there is none.
func readHead(_ text: String) -> RequestHead? {
  guard case .head(let head)? = readRequests(text).first else { return nil }
  return head
}

/// Why the bytes are refused, after any number of requests; nil if they are not.
func rejection(_ text: String, checkingSplits: Bool = true) -> Rejection? {
  rejection([UInt8](text.utf8), checkingSplits: checkingSplits)
}

func rejection(_ bytes: [UInt8], checkingSplits: Bool = true) -> Rejection? {
  guard case .rejected(let rejection)? = readRequests(bytes, checkingSplits: checkingSplits).last else { return nil }
  return rejection
}

/// A head with these lines after a valid request line and Host field.
func request(_ lines: String..., line: String = "GET / HTTP/1.1") -> String {
  ([line, "Host: a"] + lines).map { $0 + "\r\n" }.joined() + "\r\n"
}

/// What `write` writes, within `room` bytes.
func written(room: Int = 1 << 20, _ write: (inout ByteWriter) -> Void) -> [UInt8] {
  [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
    var writer = ByteWriter(UnsafeMutableRawBufferPointer(buffer))
    write(&writer)
    count = writer.count
  }
}
