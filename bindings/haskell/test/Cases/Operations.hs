-- | Reads, writes, their results, and what is refused.
module Cases.Operations (cases) where

import Control.Monad
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import qualified Data.Vector.Unboxed.Mutable as UM
import Data.Word
import Foreign.C.Error
import GHC.IO.Exception (IOErrorType (InvalidArgument))
import Support
import System.IO.BlockIO

cases :: [Case]
cases =
  [ Case "reads return the file's blocks in order" readsReturnBlocks
  , Case "batches of every size are complete" everySize
  , Case "writes are read back" writesAreReadBack
  , Case "an empty batch has no results" emptyBatch
  , Case "a read at the end of the file is short" shortAtTheEnd
  , Case "a failed operation fails alone" failsAlone
  , Case "an unpinned buffer is refused" unpinnedIsRefused
  , Case "a range outside of the buffer is refused" rangesAreRefused
  , Case "a refused batch performs no operation" refusedPerformsNothing
  , Case "results are kept in unboxed vectors" unboxedVectors
  ]

readsReturnBlocks :: IO ()
readsReturnBlocks = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  let blocks = take 64 (randoms 1 fileBlocks)
  buffer <- newPinnedByteArray (64 * fileBlock)
  results <- submitIO io (readBlocks fd buffer blocks)
  checkBlocks buffer blocks results

-- Below, at and above the limits, so that parts of a batch wait for others.
everySize :: IO ()
everySize = withPatternFile $ \fd -> withIOCtx small $ \io -> forM_ [1, 7, 8, 9, 16, 17, 32, 100] $ \n -> do
  let blocks = take n (randoms n fileBlocks)
  buffer <- newPinnedByteArray (n * fileBlock)
  results <- submitIO io (readBlocks fd buffer blocks)
  checkBlocks buffer blocks results
  where
    small = defaultIOCtxParams {ioctxBatchSizeLimit = 8, ioctxConcurrencyLimit = 16}

writesAreReadBack :: IO ()
writesAreReadBack = withFileOf 0 (const 0) $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  let blocks = [0 .. 99]
  buffer <- newPinnedByteArray (100 * fileBlock)
  forM_ blocks $ \block -> setByteArray buffer (block * fileBlock) fileBlock (blockByte block)
  written <- submitIO io $ V.fromList
    [ IOOpWrite fd (fromIntegral (b * fileBlock)) buffer (b * fileBlock) (fromIntegral fileBlock)
    | b <- blocks ]
  assertEqual "written" (map (const (IOResult (fromIntegral fileBlock))) blocks) (U.toList written)
  setByteArray buffer 0 (100 * fileBlock) (0 :: Word8)
  results <- submitIO io (readBlocks fd buffer blocks)
  checkBlocks buffer blocks results

emptyBatch :: IO ()
emptyBatch = withIOCtx defaultIOCtxParams $ \io -> do
  results <- submitIO io V.empty
  assertEqual "results" [] (U.toList results)

shortAtTheEnd :: IO ()
shortAtTheEnd = withFileOf 5000 fromIntegral $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  buffer <- newPinnedByteArray (3 * fileBlock)
  results <- submitIO io (readBlocks fd buffer [0, 1, 2])
  assertEqual "results" [IOResult 4096, IOResult 904, IOResult 0] (U.toList results)

failsAlone :: IO ()
failsAlone = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  buffer <- newPinnedByteArray (3 * fileBlock)
  results <- submitIO io $ V.fromList
    [ IOOpRead fd 0 buffer 0 4096
    , IOOpRead 1000000 0 buffer 4096 4096
    , IOOpRead fd (-1) buffer 8192 4096 ]
  assertEqual "results" [IOResult 4096, IOError eBADF, IOError eINVAL] (U.toList results)
  case U.toList results of
    [_, IOError (Errno errno), _] -> assertThat "the error number is positive" (errno > 0)
    _ -> assertThat "the second result is an IOError" False

unpinnedIsRefused :: IO ()
unpinnedIsRefused = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  unpinned <- newByteArray 16
  text <- throwsKind InvalidArgument (submitIO io (V.singleton (IOOpRead fd 0 unpinned 0 16)))
  assertThat text ("unpinned" `isPartOf` text)

rangesAreRefused :: IO ()
rangesAreRefused = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  buffer <- newPinnedByteArray 100
  let ranges = [(-1, 1), (0, 101), (100, 1), (101, 0), (50, 51), (minBound, 1), (maxBound, 1), (1, maxBound)]
  forM_ ranges $ \(from, count) -> forM_ [IOOpRead, IOOpWrite] $ \op ->
    throwsKind InvalidArgument (submitIO io (V.singleton (op fd 0 buffer from count)))
  results <- submitIO io (V.fromList [IOOpRead fd 0 buffer 100 0, IOOpRead fd 0 buffer 0 100])
  assertEqual "results" [IOResult 0, IOResult 100] (U.toList results)

refusedPerformsNothing :: IO ()
refusedPerformsNothing = withFileOf 16 (const 1) $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  buffer <- newPinnedByteArray 16
  setByteArray buffer 0 16 (2 :: Word8)
  let valid = IOOpWrite fd 0 buffer 0 16
  -- The larger one is performed in two parts.
  forM_ [1, 1048576] $ \count ->
    throwsKind InvalidArgument (submitIO io (V.snoc (V.replicate count valid) (IOOpWrite fd 0 buffer 8 16)))
  void (submitIO io (V.singleton (IOOpRead fd 0 buffer 0 16)))
  bytes <- forM [0 .. 15] (readByteArray buffer) :: IO [Word8]
  assertEqual "the file" (replicate 16 1) bytes

unboxedVectors :: IO ()
unboxedVectors = do
  let results = [IOResult 0, IOError eIO, IOResult 4096, IOError eINTR]
  assertEqual "list" results (U.toList (U.fromList results))
  assertEqual "slice" (take 2 (drop 1 results)) (U.toList (U.slice 1 2 (U.fromList results)))
  vector <- UM.replicate 4 (IOResult 7) :: IO (UM.MVector RealWorld IOResult)
  forM_ (zip [0 ..] results) (uncurry (UM.write vector))
  frozen <- U.freeze vector
  assertEqual "mutable" results (U.toList frozen)
  assertEqual "shown" "[IOResult 0,IOError (Errno 5),IOResult 4096,IOError (Errno 4)]" (show frozen)

isPartOf :: String -> String -> Bool
isPartOf part whole = any ((== part) . take (length part)) (scanr (:) [] whole)
