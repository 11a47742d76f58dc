/// The element of `names` nearest to `typed`: an edit distance of at most two, as of two swapped letters, or one if either
/// word is short. The alphabetically first of equally near ones.
package func nearest(to typed: String, among names: Set<String>) -> String? {
  guard typed.utf8.count <= 60 else { return nil }
  return names.sorted().map { (name: $0, distance: editDistance(Array(typed.utf8), Array($0.utf8))) }
    .filter { $0.distance <= (min(typed.utf8.count, $0.name.utf8.count) < 4 ? 1 : 2) }
    .min { $0.distance < $1.distance }?.name
}

/// The number of bytes to insert, delete or replace to turn `first` into `second`. Source: Wagner and Fischer, with one
/// row of their table at a time.
private func editDistance(_ first: [UInt8], _ second: [UInt8]) -> Int {
  var row = Array(0...second.count)
  for (index, byte) in first.enumerated() {
    var diagonal = row[0]
    row[0] = index + 1
    for (column, other) in second.enumerated() {
      let changed = diagonal + (byte == other ? 0 : 1)
      diagonal = row[column + 1]
      row[column + 1] = min(changed, diagonal + 1, row[column] + 1)
    }
  }
  return row[second.count]
}
