import Glibc

/// Makes UTF-8 of the body of one response in another charset, with libc's iconv.
///
/// What is not in the charset becomes U+FFFD, and is counted. libc finds the charset by its name, and may load a module
/// for it from its directory `gconv`.
@safe final class CharsetDecoder {
  /// The name, as the response has it, with small letters.
  let name: String
  private let conversion: iconv_t
  /// The beginning of a character whose rest has not come.
  private var rest: [UInt8] = []
  /// The bytes of the smallest character, which are left out if they are none.
  private let unit: Int
  private var faultCount = 0

  /// - Parameters:
  ///   - declared: the charset that the response declares; nil: none.
  ///   - start: the first bytes of the body: a byte order mark of UTF-16 counts as a declaration.
  /// - Returns: nil if the body is in UTF-8.
  /// - Throws: for a charset that libc does not know.
  static func of(_ declared: String?, _ start: UnsafeRawBufferPointer) throws(ContentFault) -> CharsetDecoder? {
    if let declared {
      return ["utf-8", "utf8", "us-ascii", "ascii", "utf8mb4"].contains(declared) ? nil : try CharsetDecoder(declared)
    }
    let mark = unsafe Array(start.prefix(2))
    // A piece may end behind its first byte, which UTF-8 does not have.
    return [[0xFF, 0xFE], [0xFE, 0xFF], [0xFF], [0xFE]].contains(mark) ? try CharsetDecoder("utf-16") : nil
  }

  private init(_ name: String) throws(ContentFault) {
    // Other characters have a meaning of their own for libc, such as the slashes of "//IGNORE".
    let isName =
      (1...40).contains(name.utf8.count)
      && name.utf8.allSatisfy { "abcdefghijklmnopqrstuvwxyz0123456789-_:.".utf8.contains($0) }
    let conversion = isName ? unsafe iconv_open("UTF-8", name) : nil
    guard let conversion = unsafe conversion, Int(bitPattern: conversion) != -1 else {
      throw ContentFault(
        sentence: "the response has the charset \(isName ? name : "of a name that is none"), which libc does not know")
    }
    self.name = name
    unsafe self.conversion = unsafe conversion
    unit =
      name.hasPrefix("utf-16") || name.hasPrefix("ucs-2")
      ? 2 : name.hasPrefix("utf-32") || name.hasPrefix("ucs-4") ? 4 : 1
  }

  deinit { unsafe iconv_close(conversion) }

  /// The number of places since the last call that were not in the charset.
  func takeFaultCount() -> Int {
    defer { faultCount = 0 }
    return faultCount
  }

  /// Appends the characters of the next bytes, which may end within one.
  func decode(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) {
    guard !rest.isEmpty else { return unsafe convert(bytes, into: &output) }
    var whole = rest
    unsafe whole.append(contentsOf: bytes)
    rest = []
    unsafe whole.withUnsafeBytes { unsafe convert($0, into: &output) }
  }

  /// The body has ended.
  func end(into output: inout [UInt8]) {
    // In some charsets libc holds a letter back, because a mark that follows would be joined to it.
    unsafe withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { room in
      var place = unsafe room.baseAddress?.assumingMemoryBound(to: CChar.self)
      var free = room.count
      _ = unsafe iconv(conversion, nil, nil, &place, &free)
      unsafe output.append(contentsOf: room[..<(room.count - free)])
    }
    guard !rest.isEmpty else { return }
    rest = []
    replace(in: &output)
  }

  private func replace(in output: inout [UInt8]) {
    output += [0xEF, 0xBF, 0xBD]
    faultCount += 1
  }

  private func convert(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) {
    guard let start = bytes.baseAddress else { return }
    // libc does not write to its input.
    var input = unsafe UnsafeMutablePointer<CChar>?(
      UnsafeMutableRawPointer(mutating: start).assumingMemoryBound(to: CChar.self))
    var left = bytes.count
    unsafe withUnsafeTemporaryAllocation(byteCount: 16 << 10, alignment: 1) { room in
      while left > 0 {
        var place = unsafe room.baseAddress?.assumingMemoryBound(to: CChar.self)
        var free = room.count
        let result = unsafe iconv(conversion, &input, &left, &place, &free)
        let code = errno
        unsafe output.append(contentsOf: room[..<(room.count - free)])
        guard result == -1, code != E2BIG else { continue }
        if code == EINVAL {
          unsafe rest = Array(bytes.suffix(left))
          return
        }
        replace(in: &output)
        let skipped = min(unit, left)
        unsafe input = unsafe input?.advanced(by: skipped)
        left -= skipped
      }
    }
  }
}
