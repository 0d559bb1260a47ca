-- | What the tests share: checks, files, pipes, and numbers from a seed.
module Support (
    Case (..),
    assertEqual,
    assertThat,
    throwsKind,
    withFileOf,
    LongBatch (..),
    newLongBatch,
    hasRunToItsEnd,
    blockByte,
    fileBlock,
    fileBlocks,
    withPatternFile,
    readBlocks,
    checkBlocks,
    randoms,
    until',
    waitsInMVar,
    threadCount,
    descriptorCount,
  ) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Control.Monad.Primitive (RealWorld)
import Data.Bits
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import Data.Word
import GHC.Conc (BlockReason (..), ThreadStatus (..), threadStatus)
import GHC.IO.Exception (IOErrorType, ioe_type)
import System.Directory
import System.IO
import System.IO.BlockIO
import System.Posix.IO (closeFd, handleToFd)
import System.Posix.Types (Fd)

data Case = Case String (IO ())

assertThat :: String -> Bool -> IO ()
assertThat what holds = unless holds (throwIO (AssertionFailed what))

assertEqual :: (Eq a, Show a) => String -> a -> a -> IO ()
assertEqual what expected found =
  assertThat (what ++ ": expected " ++ show expected ++ ", found " ++ show found) (expected == found)

-- | Checks that an action fails with an 'IOException' of this kind, and returns its text.
throwsKind :: IOErrorType -> IO a -> IO String
throwsKind kind action = do
  outcome <- try action
  case outcome of
    Right _ -> throwIO (AssertionFailed ("expected an error: " ++ show kind))
    Left e -> do
      assertEqual ("the kind of " ++ show e) kind (ioe_type e)
      pure (show (e :: IOException))

-- | A new file with this content, open for reads and writes, and already unlinked.
withFileOf :: Int -> (Int -> Word8) -> (Fd -> IO a) -> IO a
withFileOf size byte body = bracket create closeFd body
  where
    create = do
      directory <- getTemporaryDirectory
      (path, file) <- openBinaryTempFile directory "blockio"
      array <- newPinnedByteArray (max 1 size) :: IO (MutableByteArray RealWorld)
      forM_ [0 .. size - 1] $ \i -> writeByteArray array i (byte i)
      hPutBuf file (mutableByteArrayContents array) size
      hFlush file
      fd <- handleToFd file
      removeFile path
      pure fd

blockByte :: Int -> Word8
blockByte block = fromIntegral (block * 167 + block `shiftR` 8) `xor` 0x5c

fileBlock, fileBlocks :: Int
fileBlock = 4096
fileBlocks = 512

-- | A file in which each byte of a block is its 'blockByte'.
withPatternFile :: (Fd -> IO a) -> IO a
withPatternFile = withFileOf (fileBlocks * fileBlock) (\i -> blockByte (i `quot` fileBlock))

-- | Reads of these blocks, each into its own part of the buffer.
readBlocks :: Fd -> MutableByteArray RealWorld -> [Int] -> V.Vector (IOOp RealWorld)
readBlocks fd buffer blocks = V.fromList (zipWith op [0 ..] blocks)
  where
    op i block =
      IOOpRead fd (fromIntegral (block * fileBlock)) buffer (i * fileBlock) (fromIntegral fileBlock)

-- | Checks the results of 'readBlocks', and each byte.
checkBlocks :: MutableByteArray RealWorld -> [Int] -> U.Vector IOResult -> IO ()
checkBlocks buffer blocks results = do
  assertEqual "results" (map (const (IOResult (fromIntegral fileBlock))) blocks) (U.toList results)
  forM_ (zip [0 ..] blocks) $ \(i, block) -> forM_ [0, 1 .. fileBlock - 1] $ \at -> do
    byte <- readByteArray buffer (i * fileBlock + at)
    when (byte /= blockByte block) $
      assertEqual ("byte " ++ show at ++ " of block " ++ show block) (blockByte block) byte

-- | Numbers below a bound, which follow from a seed (splitmix64).
randoms :: Int -> Int -> [Int]
randoms seed bound = map (\n -> fromIntegral (mix n `mod` fromIntegral bound)) states
  where
    states = iterate (+ 0x9e3779b97f4a7c15) (fromIntegral seed * 0x5851f42d4c957f2d + 1) :: [Word64]
    mix z0 =
      let z1 = (z0 `xor` (z0 `shiftR` 30)) * 0xbf58476d1ce4e5b9
          z2 = (z1 `xor` (z1 `shiftR` 27)) * 0x94d049bb133111eb
       in z2 `xor` (z2 `shiftR` 31)

-- | Yields until the condition holds.
until' :: IO Bool -> IO ()
until' condition = do
  holds <- condition
  unless holds (yield >> until' condition)

-- | Whether the thread waits for an 'MVar', as 'submitIO' does.
waitsInMVar :: ThreadId -> IO Bool
waitsInMVar thread = (== ThreadBlocked BlockedOnMVar) <$> threadStatus thread

-- | The number of OS threads of this process whose names begin with this text.
threadCount :: String -> IO Int
threadCount name = do
  threads <- listDirectory "/proc/self/task"
  names <- forM threads $ \thread -> do
    outcome <- try (withFile ("/proc/self/task/" ++ thread ++ "/comm") ReadMode hGetLine)
    pure (either (\e -> const "" (e :: IOException)) id outcome)
  pure (length (filter ((== name) . take (length name)) names))

descriptorCount :: IO Int
descriptorCount = length <$> listDirectory "/proc/self/fd"

-- | A batch whose operations are performed one after the other and take long: each but the last one
-- reads the file's first MiB, and the last one a block.
data LongBatch = LongBatch
  { longOps :: V.Vector (IOOp RealWorld)
  , longBuffer :: MutableByteArray RealWorld
  }

-- | A batch of this number of reads of a file of 'withPatternFile'. A million take minutes.
newLongBatch :: Int -> Fd -> IO LongBatch
newLongBatch count fd = do
  buffer <- newPinnedByteArray (mib + fileBlock)
  setByteArray buffer mib fileBlock (complement (blockByte lastBlock))
  let long = IOOpRead fd 0 buffer 0 (fromIntegral mib)
      final = IOOpRead fd (fromIntegral (lastBlock * fileBlock)) buffer mib (fromIntegral fileBlock)
  pure (LongBatch (V.snoc (V.replicate (count - 1) long) final) buffer)

mib, lastBlock :: Int
mib = 1024 * 1024
lastBlock = fileBlocks - 1

-- | Whether the last operation was performed.
hasRunToItsEnd :: LongBatch -> IO Bool
hasRunToItsEnd batch = do
  byte <- readByteArray (longBuffer batch) mib
  assertThat "the last block is old or new" (byte `elem` [blockByte lastBlock, complement (blockByte lastBlock)])
  pure (byte == blockByte lastBlock)
